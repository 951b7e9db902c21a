"""What a model can do about what comes from elsewhere: wait for an event, and propose a watch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine import people, sessions
from engine.canonical import dumps, loads
from engine.errors import NodError, ToolError
from engine.schedule import named, promises, wakes
from engine.schedule.cron import in_zone
from engine.schedule.named import Check
from engine.schedule.promises import WINDOW, Asked
from engine.schedule.words import understand
from engine.sessions import Session
from engine.store.base import Store, Tx
from engine.tools.base import Result, Risk, Tool, ToolContext, tool

__all__ = ["event_tools"]

_ASKED = "A card asks the person; you are told what they decide. Do not wait for it."


def event_tools(
    store: Store,
    zone: str,
    on_card: Callable[[], None] = lambda: None,
    check: Check = lambda *_: None,
) -> list[Tool]:
    """Return the tools; `zone` is meant where a person has said none.

    `on_card` is called when a card waits to be shown; it must not wait. A call that is made again
    after a crash finds what it wrote. `check` refuses the name of an event that cannot come.
    """
    return [_waiting(store, zone, on_card, check), _watching(store, on_card, check)]


def _waiting(store: Store, default: str, on_card: Callable[[], None], check: Check) -> Tool:
    @tool(risk=Risk.CONTROL)
    async def wake_on_event(ctx: ToolContext, event: str, note: str, until: str = "") -> Result:
        """Have yourself woken here once, when a named event comes; end your turn, and go on then.

        Events come from hooks that other systems call, from the person's connected accounts (such
        as github-review; a name that is none is answered with those there are), and from other
        sessions of theirs: session:ID comes when that session's turn ends. One that came since
        this turn began counts too. A person confirms it on a card, except for a session.

        Args:
            event: Its name, for example deploy-done, or session:ID.
            note: What you will do then; you get it back word for word.
            until: When to be told that it did not come: in 2 hours; tomorrow 8:00. Empty: 30 days.
        """

        def work(tx: Tx) -> dict[str, Any]:
            session, now = sessions.get(tx, ctx.session), ctx.now()
            zone = people.zone_of(tx, session.tenant, session.owner) or default
            last = _moment(until, zone, now) if until.strip() else now + wakes.PATIENCE
            name = named.event_name(event)
            told = {"event": name, "until": f"{in_zone(last, zone)} ({zone})"}
            if name.startswith(wakes.SESSION):
                _at_work(tx, session, name.removeprefix(wakes.SESSION))
                wakes.add_on(tx, session, name, note, now, until=last, key=ctx.call)
                return told | {"waiting": True}
            check(tx, session.tenant, session.owner, name)
            began = tx.one("turn_began", session=session.id, seq=session.turn_seq)
            since = now if began is None else float(began["at"])
            promises.ask_wake(tx, session, name, note, now, until=last, since=since, zone=zone)
            return told | {"waiting": False, "note": _ASKED}

        result = await _written(store, work)
        on_card()
        return result

    return wake_on_event


def _moment(text: str, zone: str, now: float) -> float:
    when = understand(text, zone, now)
    if when.once is None:
        raise ToolError("A rhythm is no moment.", "Say when to stop waiting, as: in 2 hours.")
    return when.once


def _at_work(tx: Tx, session: Session, other: str) -> None:
    """Raise ToolError unless the other session is the same person's and has something to end."""
    row = tx.one("session_get", id=other)
    if row is None or row["owner_id"] != session.owner or other == session.id:
        raise ToolError(f"There is no other session {other} of this person.", "Look at /sessions.")
    if not row["turn_seq"] and row["wanted"] <= row["seen"]:
        raise ToolError(f"Session {other} is not at work: its turn has ended.", "Go on without it.")


def _watching(store: Store, on_card: Callable[[], None], check: Check) -> Tool:
    @tool(risk=Risk.CONTROL)
    async def propose_watch(
        ctx: ToolContext,
        source: str,
        task: str,
        any_words: list[str] = [],  # noqa: B006  # the schema shows it; nothing changes it
        all_words: list[str] = [],  # noqa: B006  # as above
        gather_seconds: float = WINDOW,
    ) -> Result:
        """Show the person a watch to confirm: what others write in a channel, or an event brings,
        is then looked at in a session of its own, which is silent unless it concerns the task.

        Args:
            source: The channel: its exact target, a name such as #alerts, here; or event:NAME.
            task: What to look for and what to do then, whole: the watch knows nothing of this talk.
            any_words: Only lines with one of these words are looked at; empty: all lines.
            all_words: Only lines with all of these words are looked at; empty: all lines.
            gather_seconds: What comes within so many seconds (10 to 3600) is looked at together.
        """

        def work(tx: Tx) -> dict[str, Any]:
            session, now = sessions.get(tx, ctx.session), ctx.now()
            place = _source(tx, session, source.strip())
            if place.startswith(promises.EVENT):
                check(tx, session.tenant, session.owner, place.removeprefix(promises.EVENT))
            asked = Asked(
                tenant=session.tenant,
                owner=session.owner,
                home=session.home,
                persona=session.persona,
                model=session.model,
                source=place,
                task=task,
                any=tuple(any_words),
                all=tuple(all_words),
                window=gather_seconds,
                session=session.id,
                taint=session.taint,
            )
            prompt = promises.ask_watch(tx, asked, now)
            source_now = prompt.payload["promise"]["source"]
            return {"watches": source_now, "at_work": False, "note": _ASKED}

        result = await _written(store, work)
        on_card()
        return result

    return propose_watch


def _source(tx: Tx, session: Session, said: str) -> str:
    """Return the target a source means: its own, this thread's, or that of a name people gave."""
    if said == "here":
        return session.home
    if not said.startswith("#"):
        return said
    row = tx.one("setting_get", tenant=session.tenant, name=f"place:{said.lower()}")
    if row is None:
        raise ToolError(
            f"I do not know which place {said} is.",
            f"Use its exact target, or ask the person to write there: /settings name {said}",
        )
    return str(loads(row["value"]))


async def _written(store: Store, work: Any) -> Result:
    try:
        return Result(text=dumps(await store.write(work)))
    except ToolError:
        raise
    except NodError as error:
        raise ToolError(error.what, error.fix) from error
