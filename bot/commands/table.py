"""One table behind every command, whether typed in a thread or sent by a second `nod`."""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from bot import board, cards, keeping
from bot.commands import listings
from bot.commands import mode as mode_command
from bot.commands.base import Command, Context
from bot.commands.budgets import BUDGET
from bot.commands.connect import CONNECT
from bot.commands.hooks import HOOK
from bot.commands.house import HOUSE
from bot.commands.jobs import JOBS, job_lines
from bot.commands.mcp import MCP
from bot.commands.schedules import SCHEDULE
from bot.commands.usage import USAGE
from bot.commands.wakes import WAKES
from bot.commands.watches import WATCH
from bot.inbound import answers
from bot.outbound.digest import DIGEST
from engine import audit, inbox, people, sessions
from engine.canonical import loads
from engine.clock import mint
from engine.errors import NodError, PromptError, SessionError
from engine.inbox import ROLES, Prompt
from engine.schedule import jobs, wakes
from engine.sessions import Post, Session
from engine.store.base import Tx

__all__ = ["COMMANDS", "Command", "Context", "run"]

LISTED = 30  # rows of a list


async def run(context: Context, name: str, arguments: str) -> str:
    """Run the command and return what it has to say, in Markdown.

    Raises NodError: no such command (with the nearest), arguments that do not fit, not allowed.
    """
    command = COMMANDS.get(name.lower())
    if command is None:
        near = difflib.get_close_matches(name.lower(), COMMANDS, n=1)
        fix = f"Did you mean /{near[0]}?" if near else "See /help."
        raise NodError(f"There is no command /{name[:40]}.", fix)
    role = context.person.role
    if role not in ROLES or ROLES.index(role) < ROLES.index(command.role):
        raise NodError(f"/{command.name} needs the role {command.role}.", "Ask an owner.")
    given = [arguments.strip()][: bool(arguments.strip())] if command.whole else _split(arguments)
    if len(given) < command.least or (command.most is not None and len(given) > command.most):
        raise NodError(f"/{command.name} was not understood.", f"Write: {_usage(command)}")
    return await command.run(context, given)


def _split(arguments: str) -> list[str]:
    """Return the words, quotes honoured; an apostrophe in prose is no quote."""
    try:
        return shlex.split(arguments)
    except ValueError:
        return arguments.split()


def _usage(command: Command) -> str:
    return f"/{command.name} {command.usage}".rstrip()


# -- help and looking


async def _help(context: Context, given: list[str]) -> str:
    lines = [f"`{_usage(each)}` — {each.help}" for each in COMMANDS.values()]
    return "\n".join(lines)


async def _status(context: Context, given: list[str]) -> str:
    def look(tx: Tx) -> str:
        session = context.session(tx)
        waiting = inbox.pending_in(tx, session.id)
        lines = [
            f"Session {session.id}, {session.state}, in {session.home}",
            f"Mode {session.mode}, model {session.model}, persona {session.persona}",
            f"Turn {session.turn}{' (open)' if session.turn_seq else ''}",
            f"Waiting for a nod: {len(waiting)}",
        ]
        lines += job_lines(
            [each for each in jobs.listed(tx, session.id) if each.running], context.house.now()
        )
        later = wakes.count(tx, session.id)
        lines += [f"Goes on by itself: {later} (/wakes)"] if later else []
        folders = [f"{r.path} ({'write' if r.writable else 'read'})" for r in session.roots]
        return "\n".join([*lines, f"Folders: {', '.join(folders)}"])

    return await context.store.read(look)


async def _inbox(context: Context, given: list[str]) -> str:
    if given:
        prompt = await context.store.read(lambda tx: _find(tx, context, given[0]))
        if not inbox.may_see(prompt, context.person):
            raise PromptError("This card is not yours to look into.", "Ask the one it is for.")
        return cards.full_text(prompt)
    waiting, running, planned = await context.store.read(
        lambda tx: board.found_for(tx, context.tenant, context.person)
    )
    lines = list(listings.inbox_lines(waiting, context.house.now()))
    if running:
        lines += ["", "At work:", *listings.session_lines(running, context.zone)]
    if planned:
        lines += ["", "Planned:", *listings.schedule_lines(planned)]
    return "\n".join(lines)


async def _threads(context: Context, given: list[str]) -> str:
    rows = await context.store.read(
        lambda tx: tx.all("thread_list", tenant=context.tenant, prefix=f"{context.surface}:%")
    )
    shown = [row for row in rows if _may_list(context, row["owner_id"])]
    lines = [f"{row['thread_target']}  {row['session_id']}" for row in shown]
    return "\n".join(lines) or "There are no threads yet."


async def _sessions(context: Context, given: list[str]) -> str:
    found = await context.store.read(lambda tx: sessions.listed(tx, context.tenant, LISTED))
    shown = [each for each in found if _may_list(context, each.owner)]
    return "\n".join(listings.session_lines(shown, context.zone))


def _may_list(context: Context, owner: str) -> bool:
    """Everybody sees their own sessions; only the owner of this Nod sees those of others."""
    return context.person.role == "owner" or context.person.id == owner


async def _audit(context: Context, given: list[str]) -> str:
    if given and given[0] != "verify":
        raise NodError("/audit was not understood.", "Write: /audit, or /audit verify")
    if given:
        faults = await context.store.read(lambda tx: audit.verify(tx, context.tenant))
        return "\n".join(faults) or "The audit is whole: every chain fits."
    rows = await context.store.read(
        lambda tx: tx.all("audit_recent", tenant=context.tenant, limit=LISTED)
    )
    return "\n".join(listings.audit_lines(reversed(rows), context.zone))


async def _whoami(context: Context, given: list[str]) -> str:
    me = context.person
    lines = [f"{me.name} ({me.id}), {me.role}, in {context.target}"]
    if me.role == "owner":
        known = await context.store.read(lambda tx: people.listed(tx, context.tenant))
        lines += [f"- {each.name} ({each.id}), {each.role}" for each in known if each.id != me.id]
    return "\n".join(lines)


# -- answering


def _find(tx: Tx, context: Context, start: str) -> Prompt:
    return inbox.find(tx, context.tenant, start.strip("`"))


_YES = {
    "approval": "once",
    "plan": "approve",
    "grant": "approve",
    "access": "deliver",
    "connect": "done",
    "notice": "seen",
}


async def _approve(context: Context, given: list[str]) -> str:
    word = given[1] if len(given) > 1 else ""
    if word not in ("", "always", "auto"):
        raise NodError(f"'{word}' is no way to approve.", "Write always, auto, or nothing.")

    def choose(prompt: Prompt) -> str:
        if prompt.kind not in _YES:
            known = ", ".join(sorted(prompt.options))
            what = f"A {prompt.kind} is not approved."
            raise PromptError(what, f"Write /answer {prompt.id} and one of: {known}.")
        if word == "always" and prompt.payload.get("schedule"):
            return "rule"
        if word == "always" and prompt.payload.get("budget"):
            return "raise"
        return word or _YES[prompt.kind]

    return await _answered(context, given[0], lambda prompt: (choose(prompt), ""))


async def _deny(context: Context, given: list[str]) -> str:
    def choose(prompt: Prompt) -> str:
        if prompt.kind == "access":
            return "dismiss"
        if "deny" not in prompt.options:
            known = ", ".join(sorted(prompt.options))
            what = f"A {prompt.kind} cannot be denied."
            raise PromptError(what, f"Write /answer {prompt.id} and one of: {known}.")
        return "deny"

    reason = " ".join(given[1:])
    return await _answered(context, given[0], lambda prompt: (choose(prompt), reason))


async def _answer(context: Context, given: list[str]) -> str:
    text = " ".join(given[1:])

    def choose(prompt: Prompt) -> tuple[str, str]:
        if prompt.kind == "question":
            return ("deny", "") if text == "deny" else ("", text)
        if text not in (prompt.options | {"auto"}):
            known = ", ".join(sorted(prompt.options))
            raise PromptError(f"'{text}' is no answer to this.", f"Answer with: {known}.")
        return text, ""

    return await _answered(context, given[0], choose)


async def _edit(context: Context, given: list[str]) -> str:
    try:
        arguments = json.loads(" ".join(given[1:]))
    except ValueError as error:
        fix = 'Put the whole object in single quotes: \'{"name": "value"}\'.'
        raise PromptError(f"These arguments are no JSON: {error}.", fix) from error
    if not isinstance(arguments, dict):
        raise PromptError("The arguments must be a JSON object.", "Write {...}.")
    return await _answered(context, given[0], lambda prompt: ("edit", ""), arguments)


async def _answered(
    context: Context,
    start: str,
    choose: Callable[[Prompt], tuple[str, str]],
    arguments: Mapping[str, Any] | None = None,
) -> str:
    """Answer the prompt with what `choose` says: (kind of answer or '', text)."""

    def work(tx: Tx) -> tuple[str, list[str]]:
        prompt = _find(tx, context, start)
        kind, text = choose(prompt)
        now = context.house.now()
        if kind:
            answer = cards.answer_of(prompt, kind, now, text, arguments)
        else:
            answer = cards.text_answer(prompt, text)
        taken, moved = answers.take(
            tx, context.house, prompt, answer, context.person, context.surface
        )
        if taken.status == "voted":
            return f"Your vote counts: {taken.votes} of {prompt.needs}.", moved
        who = people.get(tx, context.tenant, taken.prompt.resolved_by)
        name = who.name if who else taken.prompt.resolved_by
        said = cards.decision(taken.prompt, lambda _: name, ZoneInfo(context.zone))
        return (f"Already decided. {said}." if taken.status == "already" else f"{said}."), moved

    text, moved = await context.store.write(work)
    for session in moved:
        context.enqueue(session)
    context.poke()
    return text


# -- steering


async def _posted(context: Context, mail: Callable[[Tx, Session], Post], said: str) -> str:
    """Put mail into this thread's session."""

    def work(tx: Tx) -> Session:
        session = context.session(tx)
        _own(context, session)
        sessions.post(tx, session, mail(tx, session), context.house.now())
        return session

    session = await context.store.write(work)
    context.enqueue(session.id)
    return f"{said} That is {context.named(session)}." if context.beside else said


def _own(context: Context, session: Session) -> None:
    """Raise SessionError unless the person may steer the session."""
    if context.person.id != session.owner and context.person.role == "member":
        raise SessionError("This session belongs to somebody else.", "Ask them, or an owner.")


def _key(name: str) -> str:
    return f"command:{name}:{mint('e')}"


async def _stop(context: Context, given: list[str]) -> str:
    mail = Post(kind="stop", key=_key("stop"), by=context.person.id, body={"reason": "stopped"})
    said = await _posted(context, lambda tx, session: mail, "Stopping.")
    running = await context.store.read(
        lambda tx: [each for each in jobs.listed(tx, context.session(tx).id) if each.running]
    )
    return f"{said} Background jobs go on: {len(running)}, see /jobs." if running else said


async def _retry(context: Context, given: list[str]) -> str:
    mail = answers.retry_post(_key("retry"), context.person.id)
    return await _posted(context, lambda tx, session: _idle(session, mail), "Trying again.")


async def _undo(context: Context, given: list[str]) -> str:
    mail = Post(kind="undo", key=_key("undo"), by=context.person.id, body={})
    said = "Undoing the file changes of the last turn."
    return await _posted(context, lambda tx, session: _idle(session, mail), said)


def _idle(session: Session, mail: Post) -> Post:
    if session.turn_seq:
        raise SessionError("A turn is open.", "Let it end, or stop it with /stop first.")
    return mail


async def _new(context: Context, given: list[str]) -> str:
    context.own_thread()

    def work(tx: Tx) -> str:
        old = sessions.find_thread(tx, context.tenant, context.target)
        if old:
            _own(context, sessions.get(tx, old))
        now = context.house.now()
        context.house.open(tx, context.target, context.person.id, now)
        before = f" The one before is {old}." if old else ""
        return f"A new session begins here.{before}"

    return await context.store.write(work)


async def _mode(context: Context, given: list[str]) -> str:
    if not given:
        session = await context.store.read(context.session)
        return mode_command.shown(session.mode, session.custom)
    mode_command.switched(context, given, {})  # what can be nowhere is said before any thread is

    def change(tx: Tx, session: Session) -> Post:
        held = session.custom
        for row in tx.all("mail_waiting", session=session.id):  # a change that is on its way counts
            held = loads(row["body"]).get("custom", held) if row["kind"] == "switch" else held
        body = mode_command.switched(context, given, held)
        return Post(kind="switch", key=_key("mode"), by=context.person.id, body=body)

    return await _posted(context, change, f"Mode {' '.join(given)} from now.")


async def _model(context: Context, given: list[str]) -> str:
    if not given:
        session = await context.store.read(context.session)
        return f"Model {session.model}."
    entry = context.catalogue.entry(given[0])
    said = await _switched(context, "model", entry.id)
    return said if entry.known else f"{said} It is not in the catalogue: I assume little of it."


async def _switched(context: Context, name: str, value: str) -> str:
    mail = Post(kind="switch", key=_key(name), by=context.person.id, body={name: value})
    return await _posted(
        context, lambda tx, session: mail, f"{name.capitalize()} {value} from now."
    )


async def _delete(context: Context, given: list[str]) -> str:
    find = partial(listings.find_session, tenant=context.tenant, start=given[0])
    session = await context.store.read(find)
    now = context.house.now()
    await keeping.delete(context.store, context.house.data, session, context.person.id, now)
    return (
        f"Session {session} is deleted with its files. What was spent and decided stays on record."
    )


def _table(*commands: Command) -> Mapping[str, Command]:
    return {command.name: command for command in commands}


COMMANDS: Mapping[str, Command] = _table(
    Command(name="help", usage="", help="this list", run=_help),
    Command(name="status", usage="", help="what this thread's session is doing", run=_status),
    Command(
        name="inbox", usage="[ID]", help="what waits for a nod, or all of one", run=_inbox, most=1
    ),
    Command(
        name="approve",
        usage="ID [always|auto]",
        help="say yes",
        run=_approve,
        least=1,
        most=2,
    ),
    Command(
        name="deny",
        usage="ID [what to do instead]",
        help="say no",
        run=_deny,
        least=1,
        most=None,
    ),
    Command(
        name="answer",
        usage="ID TEXT",
        help="answer a question, or with any other word its card takes",
        run=_answer,
        least=2,
        most=None,
    ),
    Command(
        name="edit",
        usage="ID JSON",
        help="approve with other arguments",
        run=_edit,
        least=2,
        most=None,
    ),
    Command(name="stop", usage="", help="stop the turn in this thread", run=_stop),
    Command(name="new", usage="", help="begin a new session in this thread", run=_new),
    Command(name="retry", usage="", help="try again from the last message", run=_retry),
    Command(name="undo", usage="", help="take back the last turn's file changes", run=_undo),
    Command(
        name="mode",
        usage="[NAME] [TOOL=ANSWER …]",
        help="how much may be done without asking",
        run=_mode,
        most=None,
    ),
    Command(name="model", usage="[ID]", help="which model answers here", run=_model, most=1),
    SCHEDULE,
    JOBS,
    WATCH,
    WAKES,
    HOOK,
    MCP,
    *CONNECT,
    BUDGET,
    DIGEST,
    Command(name="threads", usage="", help="your threads on this surface", run=_threads),
    Command(name="sessions", usage="", help="your latest sessions", run=_sessions),
    Command(
        name="delete",
        usage="ID",
        help="delete a session and its files",
        run=_delete,
        least=1,
        most=1,
        role="owner",
    ),
    USAGE,
    Command(
        name="audit",
        usage="[verify]",
        help="who did what, or whether the record is whole",
        run=_audit,
        most=1,
        role="operator",
    ),
    Command(name="whoami", usage="", help="who you are here, and who else is known", run=_whoami),
    *HOUSE,
)
