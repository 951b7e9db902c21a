"""The outbox: every message that leaves goes through here, under a delivery id.

An act (the effect of an approved call) is posted once; when nobody can tell whether it was, it
says so instead of posting again. A show (a reminder, a card outside any log) may be posted again,
marked as a possible duplicate. Who posts to a place that has moved need not know.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bot.places import Move, MovedAway
from bot.surfaces.base import Line, Message, Surface, SurfaceError
from bot.web.counts import Counts
from engine.canonical import digest
from engine.clock import Now, mint
from engine.errors import NodError, TargetError, ToolError
from engine.store.base import Store, Tx
from engine.targets import ThreadTarget
from engine.tools.base import LookUp

__all__ = ["FAILURES", "TRIED_FOR", "Outbox", "Shown", "fingerprint", "passing"]

#: Seconds one request to a platform may take; an upload may take longer.
TIMEOUT = 30.0
UPLOAD_TIMEOUT = 240.0

#: Seconds after which a message that a platform never took counts as failed.
TRIED_FOR = 24 * 60 * 60.0

#: What showing something raises when it is not shown.
FAILURES = (SurfaceError, TimeoutError, NodError, OSError)

#: Messages that are remembered, which were posted anew after their place had moved.
MOVED = 1_000

DUPLICATE = "Possibly shown twice: Nod was restarted while it sent this."

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A message that is shown, to be stored with `record`."""

    session: str
    subject: str
    destination: str
    ref: str
    shown: str
    #: When what it shows was read, epoch seconds; None: just now.
    at: float | None = None


def passing(error: BaseException) -> bool:
    """Say whether a platform may take it later, or may have taken it."""
    if isinstance(error, SurfaceError):
        return not error.certain or error.retry_after is not None
    return True


def fingerprint(message: Message) -> str:
    """Return the hash that tells whether a message would look the same."""
    return digest(repr((message.text, message.card, message.footer)))


class Outbox:
    """Posts to the surface a target names. Fulfils `engine.tools.base.Delivery`.

    Args:
        opened: set once every platform was tried; until then an act waits for its surface. None:
            the surfaces are all there.
    """

    def __init__(
        self,
        store: Store,
        surfaces: Mapping[str, Surface],
        now: Now,
        tenant: str = "local",
        *,
        opened: asyncio.Event | None = None,
        counts: Counts | None = None,
    ) -> None:
        self._store = store
        self._surfaces = surfaces
        self._now = now
        self._tenant = tenant
        self._opened = opened
        self._counts = counts or Counts()
        #: Places that moved since the start: who posts there may have read the store before.
        self._moves: dict[str, Move] = {}
        #: ref of a message that was left behind -> of the one that shows it now.
        self._anew: OrderedDict[str, str] = OrderedDict()

    def surface(self, target: str) -> Surface:
        """Return the surface of a thread_target; raises ToolError when there is none."""
        try:
            name = ThreadTarget.parse(target).surface
        except TargetError as error:
            raise ToolError(error.what, error.fix) from error
        if name not in self._surfaces:
            known = ", ".join(sorted(self._surfaces))
            raise ToolError(f"There is no surface '{name}' here.", f"Connected: {known}.")
        return self._surfaces[name]

    def has(self, target: str) -> bool:
        """Say whether the surface of a thread_target is connected."""
        return ThreadTarget.parse(target).surface in self._surfaces

    async def history(self, target: str, since: float) -> list[Line]:
        """Return what was written in a thread since then; raises as the surface does."""
        return await _within(TIMEOUT, self.surface(target).history(target, since))

    # -- acts

    async def _connected(self, target: str) -> Surface:
        """Return the surface of a target; while Nod starts, it may still be connecting."""
        try:
            return self.surface(target)
        except ToolError:
            if self._opened is not None:
                with contextlib.suppress(TimeoutError):
                    await _within(TIMEOUT, self._opened.wait())
        return self.surface(target)

    async def send(self, target: str, text: str, files: Sequence[Path], subject: str) -> str:
        """Post once under `subject`, whose row was committed with the call's start.

        Returns the ref, which is stored. Raises ToolError when it was surely not posted, and
        TimeoutError when nobody can tell.
        """
        surface = await self._connected(target)
        message = Message(text=text)
        try:
            ref = await self._there(
                target, lambda place: self._act(surface, place, message, files, subject)
            )
        except SurfaceError as error:
            await self._store.write(lambda tx: self._failed(tx, self._now_at(target), subject))
            raise ToolError(f"It was not posted: {error.what}", error.fix) from error
        place = self._now_at(target)
        await self._store.write(lambda tx: self._sent(tx, place, subject, ref, message))
        return ref

    # -- places that move

    def _now_at(self, target: str) -> str:
        """Return where a target is now."""
        for move in self._moves.values():
            target = move.now(target)
        return target

    async def _there(self, target: str, work: Callable[[str], Awaitable[T]]) -> T:
        """Do it in the place a target names; in its new one when it turns out to have moved."""
        try:
            return await work(self._now_at(target))
        except MovedAway as error:
            self._moves[error.move.old] = error.move
        return await work(self._now_at(target))

    # -- one act

    async def _act(
        self, surface: Surface, target: str, message: Message, files: Sequence[Path], subject: str
    ) -> str:
        try:
            if files:
                upload = surface.upload(target, files, message, subject)
                return await self._counted(target, UPLOAD_TIMEOUT, upload)
            return await self._counted(target, TIMEOUT, surface.post(target, message, subject))
        except SurfaceError as error:
            if error.certain:
                raise
            cause: Exception = error
        except TimeoutError as error:
            cause = error
        ref = await self._look(surface, target, subject)
        if ref is not None:
            return ref
        raise TimeoutError(f"nobody can tell whether {subject} was posted") from cause

    async def find(self, target: str, subject: str) -> tuple[LookUp, str]:
        """Tell whether `subject` was posted to `target`, and its ref; stores the ref when found."""
        target = self._now_at(target)
        row = await self._store.read(
            lambda tx: tx.one(
                "delivery_get",
                tenant=self._tenant,
                subject=subject,
                destination=target,
                part=1,
            )
        )
        if row is not None and row["ref"]:
            return LookUp.HAPPENED, row["ref"]
        try:
            surface = await self._connected(target)
        except ToolError:
            return LookUp.CANNOT_TELL, ""
        try:
            ref = await _within(TIMEOUT, surface.find(target, subject))
        except (SurfaceError, TimeoutError) as error:  # not having looked is not "it did not"
            _log.warning("looking for %s failed: %s", subject, error)
            return LookUp.CANNOT_TELL, ""
        if ref is not None:
            found = ref
            await self._store.write(lambda tx: self._sent(tx, target, subject, found, Message()))
            return LookUp.HAPPENED, ref
        sure = surface.capabilities.look_up
        return (LookUp.DID_NOT if sure else LookUp.CANNOT_TELL), ""

    async def _look(self, surface: Surface, target: str, subject: str) -> str | None:
        try:
            return await _within(TIMEOUT, surface.find(target, subject))
        except (SurfaceError, TimeoutError):
            _log.warning("looking for %s failed", subject, exc_info=True)
            return None

    def _sent(self, tx: Tx, target: str, subject: str, ref: str, message: Message) -> None:
        tx.run(
            "delivery_sent",
            tenant=self._tenant,
            subject=subject,
            destination=target,
            part=1,
            ref=ref,
            shown=fingerprint(message),
            now=self._now(),
        )

    def _failed(self, tx: Tx, target: str, subject: str) -> None:
        tx.run(
            "delivery_failed",
            tenant=self._tenant,
            subject=subject,
            destination=target,
            part=1,
            now=self._now(),
        )

    # -- shows

    async def show(self, target: str, message: Message, subject: str, *, doubt: bool) -> str:
        """Post something to be seen and return its ref; the caller stores it with `record`.

        `doubt` says that an earlier run may have posted it: it is looked up first, and marked as
        a possible duplicate where that cannot be told. Raises SurfaceError, TimeoutError.
        """
        surface = self.surface(target)
        if doubt:
            ref = await _within(TIMEOUT, surface.find(target, subject))
            if ref is not None:
                await self.update(target, ref, message)
                return ref
            if not surface.capabilities.look_up:
                message = Message(text=message.text, card=message.card, footer=DUPLICATE)
        return await self._there(
            target,
            lambda place: self._counted(target, TIMEOUT, surface.post(place, message, subject)),
        )

    async def upload(
        self, target: str, files: Sequence[Path], message: Message, subject: str, *, doubt: bool
    ) -> str:
        """Post files to be seen, as `show` does."""
        surface = self.surface(target)
        if doubt:
            ref = await _within(TIMEOUT, surface.find(target, subject))
            if ref is not None:
                return ref
            if not surface.capabilities.look_up:
                message = Message(text=message.text, card=message.card, footer=DUPLICATE)

        async def send(place: str) -> str:
            upload = surface.upload(place, files, message, subject)
            return await self._counted(target, UPLOAD_TIMEOUT, upload)

        return await self._there(target, send)

    async def update(self, target: str, ref: str, message: Message) -> None:
        """Replace what a message shows; one that was left behind is posted anew.

        Raises SurfaceError, TimeoutError.
        """
        now = self._anew.get(ref, ref)
        try:
            await self._counted(target, TIMEOUT, self.surface(target).edit(now, message))
        except MovedAway as error:
            self._moves[error.move.old] = error.move
            self._anew[ref] = await self.show(target, message, f"anew:{ref}", doubt=False)
            if len(self._anew) > MOVED:
                self._anew.popitem(last=False)

    async def _counted(self, target: str, seconds: float, asked: Awaitable[T]) -> T:
        """Wait for what a platform was asked, and count what came of it."""
        surface, outcome = target.partition(":")[0], "failed"
        try:
            answer = await _within(seconds, asked)
            outcome = "sent"
            return answer
        finally:
            self._counts.add("nod_posts_total", surface=surface, outcome=outcome)

    def record(self, tx: Tx, shown: Shown) -> None:
        """Store that a message is shown, whether or not its row was there."""
        drawn = {
            "tenant": self._tenant,
            "subject": shown.subject,
            "destination": self._now_at(shown.destination),
            "ref": self._anew.get(shown.ref, shown.ref),
            "shown": shown.shown,
            "now": self._now() if shown.at is None else shown.at,
        }
        if not tx.run("delivery_drawn", **drawn):
            tx.run("delivery_shown", id=mint("d"), session=shown.session, **drawn)


async def _within(seconds: float, asked: Awaitable[T]) -> T:
    async with asyncio.timeout(seconds):  # wait_for of Python 3.11 can swallow a cancellation
        return await asked
