"""What a process prints: read as it comes, the end kept, never more than a limit."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress

__all__ = ["Pump", "Tail"]

_WIDEST = 4  # bytes of one character in UTF-8
_READ = 65_536  # bytes; the capacity of a pipe on Linux, pipe(7)


class Tail:
    """The last `limit` characters of a stream of UTF-8 bytes; `dropped` counts lost bytes."""

    def __init__(self, limit: int) -> None:
        self.dropped = 0
        self._limit = limit
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        """Take in `data`; what is older than the limit goes."""
        self._data += data
        self._cut(len(self._data) - self._limit * _WIDEST)

    def take(self, *, whole: bool) -> str:
        """Return what is kept and forget it.

        Without `whole` a character whose last bytes have not come yet stays for the next time.
        """
        while self.dropped and self._data and self._data[0] & 0xC0 == 0x80:
            self._cut(1)  # the rest of a character whose first byte is gone
        end = len(self._data) - (0 if whole else _unfinished(self._data))
        text = self._data[:end].decode("utf-8", "replace")
        del self._data[:end]
        if len(text) > self._limit:
            self.dropped += len(text[: -self._limit].encode())
            text = text[-self._limit :]
        return text

    def _cut(self, count: int) -> None:
        if count > 0:
            del self._data[:count]
            self.dropped += count


class Pump:
    """A pipe whose read end is emptied into `sink` by the event loop; belongs to one loop."""

    def __init__(self, sink: Callable[[bytes], None]) -> None:
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._read, self.write_end = os.pipe()
        self._open = True
        os.set_blocking(self._read, False)
        self._loop.add_reader(self._read, self._pull)

    def handed_over(self) -> None:
        """Close our copy of the write end: the process has its own now."""
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    def drain(self) -> None:
        """Take in what is in the pipe at this moment; does not wait for more."""
        for _ in range(2):
            if not self._open or not self._pull():
                return

    def close(self) -> None:
        """Stop reading. Safe to call twice."""
        self.handed_over()
        if self._open:
            self._open = False
            self._loop.remove_reader(self._read)
            os.close(self._read)

    def _pull(self) -> bool:
        data = b""
        with suppress(BlockingIOError, InterruptedError):
            data = os.read(self._read, _READ)
            if not data:
                self.close()
        self._sink(data)
        return bool(data)


def _unfinished(data: bytearray) -> int:
    """Count the bytes at the end that begin a character and do not finish it."""
    for back in range(1, min(_WIDEST, len(data) + 1)):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        length = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return back if length > back else 0
    return 0
