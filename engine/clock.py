"""Where time and ids come from. Time is seconds since the epoch, UTC, as a float."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

__all__ = ["Now", "mint", "system_now"]

#: Returns the present moment: seconds since 1970-01-01 00:00 UTC.
Now = Callable[[], float]

system_now: Now = time.time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford base 32: no look-alikes


def mint(prefix: str) -> str:
    """Return a new id: `prefix` and 12 random characters (60 bits)."""
    number = secrets.randbits(60)
    return prefix + "".join(_ALPHABET[(number >> shift) & 31] for shift in range(0, 60, 5))
