"""What a model can do about later: propose a schedule, and have itself woken."""

from __future__ import annotations

from collections.abc import Callable

from engine import people, sessions
from engine.canonical import dumps
from engine.errors import NodError, ToolError
from engine.schedule import proposals, wakes
from engine.schedule.cron import in_zone
from engine.schedule.named import Check
from engine.schedule.proposals import Proposal, read
from engine.schedule.words import understand
from engine.sessions import Session
from engine.store.base import Store, Tx
from engine.tools.base import Result, Risk, Tool, ToolContext, tool

__all__ = ["schedule_tools"]


def schedule_tools(
    store: Store,
    zone: str,
    on_card: Callable[[], None] = lambda: None,
    check: Check = lambda *_: None,
) -> list[Tool]:
    """Return the tools; `zone` is meant where a person has said none.

    `on_card` is called when a card waits to be shown; it must not wait. A call that is made again
    after a crash finds what it wrote. `check` refuses the name of an event that cannot come.
    """
    return [_proposing(store, zone, on_card, check), _sleeping(store, zone)]


def _zone(tx: Tx, session: Session, default: str) -> str:
    return people.zone_of(tx, session.tenant, session.owner) or default


def _proposing(store: Store, default: str, on_card: Callable[[], None], check: Check) -> Tool:
    @tool(risk=Risk.CONTROL)
    async def propose_schedule(
        ctx: ToolContext,
        when: str,
        instructions: str,
        report_to: str = "",
        title: str = "",
        zone: str = "",
    ) -> Result:
        """Show the person a schedule to confirm; until they do, nothing is scheduled.

        Args:
            when: As the person said it: every weekday at 8; tomorrow 17:30; in 2 hours; 0 8 * * 1.
                Rules they named follow: every day at 8, catch up all, queue, deadline 30 min,
                retry 3, quiet 22:00-7:00.
            instructions: What each run is to do, whole: a run knows nothing of this conversation.
            report_to: The exact target runs send their result to; empty: here.
            title: A short name.
            zone: A time zone such as Europe/Berlin; empty: the person's own.
        """

        def work(tx: Tx) -> str:
            session, now = sessions.get(tx, ctx.session), ctx.now()
            understood, said, policy = read(when, zone or _zone(tx, session, default), now)
            if understood.event:
                check(tx, session.tenant, session.owner, understood.event)
            proposal = Proposal(
                tenant=session.tenant,
                owner=session.owner,
                home=session.home,
                persona=session.persona,
                model=session.model,
                when=understood,
                said=said,
                policy=policy,
                session=session.id,
                taint=session.taint,
                instructions=instructions,
                report_to=report_to.strip(),
                title=title,
            )
            proposals.propose(tx, proposal, now)
            return str(proposal.when)

        try:
            understood = await store.write(work)
        except NodError as error:
            raise ToolError(error.what, error.fix) from error
        on_card()
        note = "A card asks the person; you are told what they decide. Do not wait for it."
        return Result(text=dumps({"understood": understood, "scheduled": False, "note": note}))

    return propose_schedule


def _sleeping(store: Store, default: str) -> Tool:
    @tool(risk=Risk.CONTROL)
    async def sleep_until(ctx: ToolContext, time: str, note: str) -> Result:
        """Have yourself woken here once, later: end your turn, and go on then with the note.

        Args:
            time: tomorrow 8:00, in 20 minutes, friday at 9, 2026-12-24 08:00.
            note: What you will do then; you get it back word for word.
        """

        def work(tx: Tx) -> str:
            session, now = sessions.get(tx, ctx.session), ctx.now()
            when = understand(time, _zone(tx, session, default), now)
            if when.once is None:
                raise ToolError("A rhythm is a schedule.", "Use propose_schedule for it.")
            wakes.add(tx, session, when.once, note, now, key=ctx.call)
            return f"You are woken at {in_zone(when.once, when.zone)} ({when.zone})."

        try:
            return Result(text=await store.write(work))
        except ToolError:
            raise
        except NodError as error:
            raise ToolError(error.what, error.fix) from error

    return sleep_until
