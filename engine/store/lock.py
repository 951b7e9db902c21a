"""The advance lock of a SQLite data folder: one process moves its sessions, the others wait or ask.

The operating system releases it when the holder ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from engine.errors import StoreBusy, StoreError

__all__ = ["AdvanceLock"]


class AdvanceLock:
    """Holds `<data>/nod.lock` from `take` until `release`, or until the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, data: Path) -> AdvanceLock:
        """Take the lock of the folder `data`, which is made when it is missing.

        Raises StoreBusy with the holder's process id when it is held, StoreError when the folder
        cannot be written.
        """
        try:
            data.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(data / "nod.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(
                f"The data folder {data} cannot be written ({error.strerror}).",
                "Check the folder and its permissions.",
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            os.close(descriptor)
            raise StoreBusy(
                f"Another Nod (process {holder}) is at work on {data}.",
                "Talk to that one ('nod approve', 'nod inbox'), or stop it first; several "
                "processes on one store need Postgres.",
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return cls(descriptor)

    def release(self) -> None:
        """Give the lock back. Safe to call twice. The file stays: its presence means nothing."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None
