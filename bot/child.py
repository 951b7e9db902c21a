"""A Nod of our own in a second process: started, waited for, killed, stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import bot
from engine.errors import NodError

__all__ = ["Child"]

_STOP = 10.0  # seconds it has to end by itself
_LOOK = 0.02  # seconds between looks whether it is ready
_TAIL = 600  # characters of its log that are shown when it fails


class Child:
    """One `nod serve` on the data folder `data`; its log goes to `<data>/serve.log`."""

    def __init__(self, data: Path, environ: Mapping[str, str]) -> None:
        self._log = data / "serve.log"
        package = str(Path(bot.__file__).parent.parent)
        paths = [package, *filter(None, [environ.get("PYTHONPATH")])]
        with self._log.open("ab") as log:
            # -P: the folder we stand in may have a `bot` of its own.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "bot.cli", "serve"],
                env={**environ, "NOD_HOME": str(data), "PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us; we end it in order
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def check(self) -> None:
        """Raise NodError with the end of its log when it has ended by itself."""
        if self._process.poll() is not None:
            told = self._log.read_text(encoding="utf-8", errors="replace").strip()[-_TAIL:]
            raise NodError(f"nod serve ended with {self._process.returncode}: {told}")

    def kill(self) -> None:
        """End it as a crash would: SIGKILL, no chance to put anything in order."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    async def stop(self) -> int:
        """Ask it to end, and return its exit code; it is killed when it does not."""
        self._process.terminate()
        try:
            return await asyncio.to_thread(self._process.wait, _STOP)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.returncode
