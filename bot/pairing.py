"""Pairing: a one-time code from the console, typed to Nod in a direct message, proves the owner.

Only the code's hash is kept. It lives ten minutes and for five wrong tries, and there is one at a
time.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets

from bot.surfaces.base import Said
from engine import people
from engine.canonical import dumps, loads
from engine.inbox import Person
from engine.store.base import Tx
from engine.targets import ThreadTarget

__all__ = ["CLOSED", "MINUTES", "closed", "looks_like_code", "offer", "paired", "redeem"]

#: Platforms on which nobody is heard before the owner is known there.
CLOSED = frozenset({"slack", "telegram", "discord"})

MINUTES, TRIES = 10, 5
#: No letter that is taken for a digit (Crockford); 8 of them are 40 bits.
_LETTERS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_CODE = re.compile(r"\s*([0-9A-HJKMNP-TV-Z]{4})[- ]?([0-9A-HJKMNP-TV-Z]{4})\s*", re.IGNORECASE)
_NAME = "pairing"


def offer(tx: Tx, tenant: str, now: float) -> str:
    """Make a code and return it; an earlier one counts no more."""
    made = "".join(secrets.choice(_LETTERS) for _ in range(8))
    kept = {"hash": _hash(made), "until": now + MINUTES * 60.0, "tries": TRIES}
    tx.run("setting_put", tenant=tenant, name=_NAME, value=dumps(kept), now=now)
    return f"{made[:4]}-{made[4:]}"


def looks_like_code(text: str) -> bool:
    """Say whether a whole message has the form of a code."""
    return _CODE.fullmatch(text) is not None


def redeem(tx: Tx, tenant: str, said: Said, now: float) -> Person | None:
    """Make the author of a direct message that is the code the owner; None: it is not.

    A wrong code costs a try, whoever typed it.
    """
    row = tx.one("setting_get", tenant=tenant, name=_NAME)
    found = _CODE.fullmatch(said.text)
    if row is None or found is None or not said.direct or said.bot:
        return None
    kept = loads(row["value"])
    right = hmac.compare_digest(kept["hash"], _hash((found[1] + found[2]).upper()))
    if not right or now >= kept["until"]:
        kept["tries"] -= 1
        if kept["tries"] > 0 and now < kept["until"]:
            tx.run("setting_put", tenant=tenant, name=_NAME, value=dumps(kept), now=now)
        else:
            tx.run("setting_drop", tenant=tenant, name=_NAME)
        return None
    tx.run("setting_drop", tenant=tenant, name=_NAME)
    platform = ThreadTarget.parse(said.target).surface
    owner = people.join_owner(tx, tenant, platform, said.person.id, name=said.person.name, now=now)
    people.seen_at(tx, tenant, platform, said.person.id, said.target, now)
    return owner


def paired(tx: Tx, tenant: str, platform: str) -> bool:
    """Say whether the owner is known on the platform."""
    return people.on_platform(tx, tenant, platform)


def closed(tx: Tx, tenant: str, platform: str) -> bool:
    """Say whether strangers are turned away there because the owner has not paired yet."""
    return platform in CLOSED and not paired(tx, tenant, platform)


def _hash(code: str) -> str:
    return hashlib.sha256(f"nod pairing {code}".encode()).hexdigest()
