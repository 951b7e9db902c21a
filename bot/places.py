"""Tells in which thread a post stands, and moves threads when their platform moves them.

For surfaces whose posts only name the post they reply to, and no thread.
"""

from __future__ import annotations

from engine.canonical import dumps, loads
from engine.store.base import Store, Tx
from engine.targets import ThreadTarget

__all__ = ["Places"]

_MOVES = (
    "move_threads",
    "move_homes",
    "move_mail",
    "move_deliveries",
    "move_schedule_homes",
    "move_reports",
)


class Places:
    """Reads places from the store, and writes them anew when they move."""

    def __init__(self, store: Store, tenant: str) -> None:
        self._store = store
        self._tenant = tenant

    async def of(self, platform: str, post: str) -> str:
        """Return the thread_target a post stands in; empty: it is not known.

        `post` is the ref of a message of Nod's, or the event of one that was taken.
        """

        def look(tx: Tx) -> str:
            shown = tx.one("place_of_post", tenant=self._tenant, ref=post)
            if shown is not None:
                return str(shown["destination"])
            mail = tx.one("mail_of_event", tenant=self._tenant, key=f"{platform}:{post}")
            return str(mail["thread_target"]) if mail is not None else ""

        return await self._store.read(look)

    async def moved(self, old: str, new: str) -> None:
        """Rewrite every target that is `old` or lies inside it, in one transaction.

        Raises TargetError when one of them is no target.
        """
        ThreadTarget.parse(old), ThreadTarget.parse(new)

        def work(tx: Tx) -> None:
            for name in _MOVES:
                tx.run(name, tenant=self._tenant, old=old, new=new, inside=f"{old}/%")
            for row in tx.all("rules_aimed", tenant=self._tenant, inside=f'%"{old}%'):
                aimed = [_moved(target, old, new) for target in loads(row["target"])]
                tx.run("rule_aim", id=row["id"], target=dumps(sorted(aimed)))

        await self._store.write(work)


def _moved(target: str, old: str, new: str) -> str:
    inside = target == old or target.startswith(f"{old}/")
    return new + target[len(old) :] if inside else target
