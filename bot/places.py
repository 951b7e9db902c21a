"""Tells in which thread a post stands, and moves threads when their platform moves them.

For surfaces whose posts only name the post they reply to, and no thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from bot.surfaces.base import SurfaceError
from engine.canonical import dumps, loads
from engine.store.base import Store, Tx
from engine.targets import ThreadTarget

__all__ = ["Move", "MovedAway", "Places"]

#: Each rewrites the columns of one table that hold nothing but a thread_target.
_COLUMNS = (
    "move_threads",
    "move_homes",
    "move_mail",
    "move_deliveries",
    "move_schedules",
    "move_watches",
    "move_budgets",
    "move_gates",
    "move_connecting",
    "move_switch",
)
#: (what is looked for, how it is rewritten) of JSON in which targets stand. What a person decided
#: or is asked to decide by its hash, and what is history, stays as it was said.
_TEXTS = (
    ("names_aimed", "name_aim"),
    ("prompts_aimed", "prompt_aim"),
    ("held_aimed", "held_aim"),
    ("watched_aimed", "watched_aim"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A place that is another one from now on."""

    #: thread_target before and after.
    old: str
    new: str
    #: How the refs of posts begin that were left behind; nobody can edit those any more.
    posts: str
    #: How a part inside begins that was named by such a post, and how it is named now: the number
    #: of that post is another one's in the new place.
    was: str
    becomes: str

    def now(self, target: str) -> str:
        """Return where a target is now."""
        if target != self.old and not target.startswith(f"{self.old}/"):
            return target
        return self.new + target[len(self.old) :].replace(f"/{self.was}", f"/{self.becomes}")


class MovedAway(SurfaceError):
    """A place that was posted to has moved; all that is stored was rewritten."""

    def __init__(self, move: Move) -> None:
        super().__init__(f"{move.old} is {move.new} now.", retry_after=1.0)
        self.move = move


class Places:
    """Reads places from the store, and writes them anew when they move."""

    def __init__(self, store: Store, tenant: str, poke: Callable[[], None] = lambda: None) -> None:
        """`poke` hints that something is to be shown anew."""
        self._store = store
        self._tenant = tenant
        self._poke = poke

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

    async def after(self, old: str) -> str:
        """Return the place that `old` moved to; empty: it did not."""
        name = _setting(old)
        row = await self._store.read(
            lambda tx: tx.one("setting_get", tenant=self._tenant, name=name)
        )
        return "" if row is None else str(loads(row["value"]))

    async def moved(self, move: Move) -> None:
        """Rewrite every target that is the old place or lies inside it, in one transaction.

        Cards that wait are shown anew in the new place. Again, it changes nothing. Raises
        TargetError when one of them is no target.
        """
        ThreadTarget.parse(move.old), ThreadTarget.parse(move.new)
        await self._store.write(lambda tx: self._move(tx, move))
        self._poke()

    def _move(self, tx: Tx, move: Move) -> None:
        given = {"tenant": self._tenant, "old": move.old, "new": move.new}
        given |= {"inside": f"{move.old}/%", "was": f"/{move.was}", "becomes": f"/{move.becomes}"}
        for name in _COLUMNS:
            tx.run(name, **given)
        left = {"tenant": self._tenant, "posts": f"{move.posts}%"}
        tx.run("move_cards", **left)
        tx.run("move_refs", **left)
        for row in tx.all("rules_aimed", tenant=self._tenant, inside=f'%"{move.old}%'):
            aimed = sorted(map(move.now, loads(row["target"])))
            tx.run("rule_aim", id=row["id"], target=dumps(aimed))
        place = re.compile(rf'{re.escape(move.old)}(?P<rest>(?:/[^\s"\\]*)?)(?=[\s"\\]|$)')
        for look, rewrite in _TEXTS:
            for row in tx.all(look, tenant=self._tenant, inside=f"%{move.old}%"):
                text = place.sub(lambda found: move.now(found[0]), row["text"])
                tx.run(rewrite, tenant=self._tenant, id=row["id"], text=text)
        name = _setting(move.old)
        tx.run("setting_put", tenant=self._tenant, name=name, value=dumps(move.new), now=0.0)


def _setting(old: str) -> str:
    return f"moved:{old}"
