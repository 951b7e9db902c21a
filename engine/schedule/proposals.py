"""Schedules somebody means to make: a card says what was understood, and a person confirms it.

Nothing is scheduled before that. What the card holds is made exactly so: a moment that was counted
from the time of asking is not counted again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine import budgets, grants, inbox
from engine.canonical import digest, dumps
from engine.clock import mint
from engine.errors import ScheduleError
from engine.inbox import Person, Prompt
from engine.permissions import rules
from engine.permissions.rules import StandingRule
from engine.schedule import schedules
from engine.schedule.cron import in_zone
from engine.schedule.policy import DEFAULT, Policy, split
from engine.schedule.schedules import Schedule
from engine.schedule.words import When, understand
from engine.store.base import Tx
from engine.tools.base import Risk, Root

__all__ = ["ARGUMENTS", "TOOL", "Proposal", "begin", "budget", "changed", "coming", "confirm"]
__all__ += ["propose", "read", "standing"]

#: The tool whose arguments a proposal has; what the card's form is made from.
TOOL = "propose_schedule"
#: What a person can change on the card.
ARGUMENTS = ("when", "instructions", "report_to", "title", "zone")

#: What a schedule that reports somewhere may be allowed with the confirmation.
RULED = "send_message"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What somebody asked for, and for whom."""

    tenant: str
    #: Whose schedule it will be.
    owner: str
    #: thread_target its runs speak in.
    home: str
    persona: str
    model: str
    when: When
    #: How the time was said, without the rules.
    said: str
    instructions: str
    policy: Policy = DEFAULT
    title: str = ""
    report_to: str = ""
    #: Whole paths its runs may read.
    read: tuple[str, ...] = ()
    #: The schedule it changes; empty: it makes one.
    changes: str = ""
    #: The session it came from; None: a command.
    session: str | None = None
    #: Labels of the outside text that was in play when it was proposed.
    taint: tuple[str, ...] = ()

    @property
    def named(self) -> str:
        """The title, made from the instructions where none was given."""
        return self.title.strip() or " ".join(self.instructions.split())[:60]


def read(said: str, zone: str, now: float) -> tuple[When, str, Policy]:
    """Return the time, how it was said, and the rules that are named after it.

    Raises ScheduleError for what is not surely understood or cannot be.
    """
    time, fields = split(said)
    return understand(time, zone, now), time, replace(DEFAULT, **fields)


def propose(tx: Tx, proposal: Proposal, now: float) -> Prompt:
    """Raise the card and return it, or the same one while it waits.

    Raises ScheduleError or TargetError when no such schedule can be.
    """
    schedules.check(proposal.named, proposal.instructions.strip(), proposal.report_to)
    payload = _payload(tx, proposal, now)
    asked = digest(dumps([payload["schedule"], payload["arguments"]]))[:16]
    thing = f"{proposal.session or proposal.home}/schedule:{asked}"
    open_one = tx.one("grant_open", tenant=proposal.tenant, prefix=f"{thing}/%")
    if open_one is not None:
        return inbox.get(tx, open_one["id"])
    latest = now + inbox.DEADLINE
    return inbox.ask(
        tx,
        Prompt(
            id=mint("p"),
            tenant=proposal.tenant,
            session=proposal.session,
            kind="grant",
            subject=f"{thing}/{mint('n')}",
            payload=payload,
            approvers={"role": "operator", "person": proposal.owner, "own_suffices": True},
            created_at=now,
            remind_at=now + inbox.REMINDER,
            deadline=min(latest, proposal.when.once or latest),
        ),
    )


def _payload(tx: Tx, proposal: Proposal, now: float) -> dict[str, Any]:
    when = proposal.when
    return {
        "title": "Change this schedule?" if proposal.changes else "Schedule this?",
        "tool": TOOL,
        "text": proposal.instructions.strip(),
        "facts": _facts(tx, proposal, now),
        "taint": list(proposal.taint),
        "arguments": {
            "when": ", ".join(filter(None, (proposal.said, str(proposal.policy)))),
            "instructions": proposal.instructions.strip(),
            "report_to": proposal.report_to,
            "title": proposal.named,
            "zone": when.zone,
        },
        "schedule": {
            "owner": proposal.owner,
            "home": proposal.home,
            "persona": proposal.persona,
            "model": proposal.model,
            "cron": when.cron,
            "once": when.once,
            "zone": when.zone,
            "policy": schedules.fields_of(proposal.policy),
            "read": list(proposal.read),
            "changes": proposal.changes,
            "before": _stamp(schedules.get(tx, proposal.changes)) if proposal.changes else "",
        },
        "options_allowed": ["approve", "edit", "deny"],
    }


def _stamp(schedule: Schedule) -> str:
    """Return what tells whether a person has changed it since."""
    when = [schedule.cron, schedule.when.once, schedule.zone]
    rest = [schedule.title, schedule.instructions, schedule.report_to, str(schedule.policy)]
    return digest(dumps([*when, *rest]))[:16]


def _facts(tx: Tx, proposal: Proposal, now: float) -> list[list[str]]:
    when = proposal.when
    facts = [["Changes", proposal.changes]] if proposal.changes else []
    facts += [["When", str(when)], ["Understood from", proposal.said]]
    if not when.event and (when.cron or proposal.policy.quiet):
        facts.append(["Next", "; ".join(coming(when, proposal.policy, now))])
    facts.append(["Reports to", proposal.report_to or f"{proposal.home} (here)"])
    if proposal.read:
        facts.append(["May read", ", ".join(proposal.read)])
    facts.append(["Without asking", _allowed(tx, proposal)])
    facts += [list(line) for line in proposal.policy.told()]
    facts.append(["Budget", budget(tx, proposal.tenant, proposal.changes)])
    return facts


def budget(tx: Tx, tenant: str, schedule: str) -> str:
    """Say what the runs of a schedule, or of one that is not made yet, may spend."""
    own = [str(each) for each in budgets.for_schedule(tx, tenant, schedule)] if schedule else []
    return "; ".join(own) or f"none of its own; /budget schedule {schedule or 'ID'} sets one"


def coming(when: When, policy: Policy, now: float, n: int = 3) -> list[str]:
    """Return when the next `n` runs begin, as the clock there shows it; what is held, once."""
    shown: list[str] = []
    at: float | None = now
    while len(shown) < n and at is not None and (at := when.next_after(at)) is not None:
        begins = policy.begins(at, when.zone)
        held = f" (due {in_zone(at, when.zone)})" if begins > at else ""
        shown.append(f"{in_zone(begins, when.zone)}{held}")
        at = begins  # what else comes due until then is the same run
    return shown


def _allowed(tx: Tx, proposal: Proposal) -> str:
    """Say what its runs may do without asking."""
    own = "reads, and writes in a folder of its own"
    if proposal.changes:
        before = schedules.get(tx, proposal.changes)
        same = (before.instructions, before.report_to) == (
            proposal.instructions.strip(),
            proposal.report_to,
        )
        rules_now = standing(tx, proposal.changes)
        if rules_now and same:
            kept = "; ".join(f"{r.rule.tool} to {', '.join(r.rule.target)}" for r in rules_now)
            return f"{own}; as before {kept}"
        if rules_now:
            return f"{own}; its standing rules end, since it does something else"
    if not proposal.report_to:
        return f"{own}; everything else is asked"
    return f"{own}; messages to {proposal.report_to} only if you say so here"


def confirm(tx: Tx, prompt: Prompt, by: Person, now: float, *, ruled: bool) -> Schedule:
    """Make or change the schedule of a confirmed card, and return it.

    `ruled` keeps the standing rule the card offered: messages to where it reports need no asking,
    as long as it does the same. Raises ScheduleError when it can no longer be, or was changed since
    the card was shown, PromptError when `by` may not make that rule.
    """
    made, arguments = prompt.payload["schedule"], prompt.payload["arguments"]
    if made["changes"] and made.get("before", "") not in (
        "",
        _stamp(schedules.get(tx, made["changes"])),
    ):
        raise ScheduleError("The schedule was changed after this card was shown.", "Edit it anew.")
    proposal = Proposal(
        tenant=prompt.tenant,
        owner=made["owner"],
        home=made["home"],
        persona=made["persona"],
        model=made["model"],
        when=When(zone=made["zone"], cron=made["cron"], once=made["once"]),
        said=arguments["when"],
        policy=schedules.policy_from(made.get("policy") or schedules.fields_of(DEFAULT)),
        instructions=arguments["instructions"],
        title=arguments["title"],
        report_to=arguments["report_to"],
        read=tuple(made["read"]),
        changes=made["changes"],
    )
    schedule = begin(tx, proposal, by, now)
    if ruled:
        _rule(tx, schedule, prompt.payload["taint"], now)
    return schedule


def begin(tx: Tx, proposal: Proposal, by: Person, now: float) -> Schedule:
    """Make or change the schedule as proposed, and return it.

    Raises ScheduleError or TargetError when it can no longer be.
    """
    task: dict[str, Any] = {
        "title": proposal.named,
        "when": proposal.when,
        "instructions": proposal.instructions,
        "report_to": proposal.report_to,
        "policy": proposal.policy,
        "now": now,
    }
    if proposal.changes:
        return schedules.change(tx, proposal.changes, **task)
    schedule = schedules.add(
        tx,
        tenant=proposal.tenant,
        owner=proposal.owner,
        home=proposal.home,
        persona=proposal.persona,
        model=proposal.model,
        **task,
    )
    folders = [Root(path=Path(path)) for path in proposal.read]
    thing = grants.of_schedule(schedule.id)
    grants.give_folders(tx, proposal.tenant, thing, folders, by=by.id, now=now)
    return schedule


def standing(tx: Tx, schedule: str) -> list[StandingRule]:
    """Return the rules that hold in runs of this schedule, and nowhere else."""
    return rules.of_schedule(tx, schedule)


def _rule(tx: Tx, schedule: Schedule, named: Sequence[str], now: float) -> None:
    if any(each.rule.target == (schedule.report_to,) for each in standing(tx, schedule.id)):
        return
    rules.make_rule(
        tx,
        tenant=schedule.tenant,
        session=None,
        schedule=schedule.id,
        principal=schedule.owner,
        tool=RULED,
        risk=Risk.EXTERNAL,
        target=[schedule.report_to],
        uses=None,
        expires_at=None,
        taint=named,
        made_under=named,
        now=now,
    )


def changed(tx: Tx, prompt: Prompt, arguments: Mapping[str, Any], now: float) -> Prompt:
    """Raise the card anew with what a person changed on it; a moment not touched stays as it was.

    Raises ScheduleError or TargetError when no such schedule can be.
    """
    made, before = prompt.payload["schedule"], prompt.payload["arguments"]
    unknown = sorted(set(arguments) - set(ARGUMENTS))
    if unknown:
        raise ScheduleError(
            f"A schedule has no {', '.join(unknown)}.", f"There are: {', '.join(ARGUMENTS)}."
        )
    given = {name: str(arguments.get(name) or "").strip() for name in ARGUMENTS}
    given = {name: given[name] if name in arguments else before[name] for name in ARGUMENTS}
    when = When(zone=made["zone"], cron=made["cron"], once=made["once"])
    said, fields = split(given["when"])
    if (said, given["zone"]) != (split(before["when"])[0], before["zone"]):
        when = understand(said, given["zone"] or made["zone"], now)
    proposal = Proposal(
        tenant=prompt.tenant,
        owner=made["owner"],
        home=made["home"],
        persona=made["persona"],
        model=made["model"],
        when=when,
        said=said,
        instructions=given["instructions"],
        policy=replace(DEFAULT, **fields),
        title=given["title"],
        report_to=given["report_to"],
        read=tuple(made["read"]),
        changes=made["changes"],
        session=prompt.session,
        taint=tuple(prompt.payload["taint"]),
    )
    return propose(tx, proposal, now)
