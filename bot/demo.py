"""Runs the main job before the person's eyes, with the real parts and a real kill in the middle.

A scheduled run reads a repository and a calendar at once, writes a briefing, and asks for a nod
before it posts. While it waits its process is killed and another one started; then the answer is
taken, from this process as another surface, and the post must be there exactly once.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import typer

from bot import cards, sample
from bot import settings as reading
from bot.child import Child
from bot.commands import listings
from bot.picking import Picked, load_catalogue, pick
from bot.shell import socket
from connectors.registry import write_sample_calendar
from engine import audit, grants, inbox, people, sessions
from engine.canonical import loads
from engine.clock import Now, system_now
from engine.errors import NodError, SettingsError
from engine.events import Event, Kind
from engine.inbox import Prompt
from engine.schedule import schedules
from engine.schedule.words import When
from engine.store.base import Store, Tx
from engine.store.opening import open_store
from engine.tools.base import Root
from engine.turn.journal import event_from
from personas.registry import DEFAULT, Personas

__all__ = ["Demo", "Plan", "make_plan", "show"]

TENANT = "local"
REPORT_TO = "console:standup"
#: The surface this process answers on.
ANSWERS_FROM = "socket:demo"
#: Seconds a run may take; a real model needs some, the practice model none.
_RUN = 900.0
_LOOK = 0.05  # seconds between looks at the log
#: What the demo says to prompts that are no yes or no.
_SHRUG = {"outcome": "unknown", "notice": "seen"}

Say = Callable[[str], None]
#: Asks the person about a card: returns the key that was pressed, 'a' or 'd'.
Ask = Callable[[], Awaitable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the demo works on."""

    data: Path
    environ: Mapping[str, str]
    picked: Picked
    zone: str
    repo: Path
    calendar: Path
    #: One sentence each, about what is not the person's own.
    notes: tuple[str, ...] = ()


async def make_plan(
    environ: Mapping[str, str], data: Path, now: Now, repo: Path | None, calendar: Path | None
) -> Plan:
    """Find the model, the repository and the calendar; `data` is the demo's own, empty folder.

    Raises SettingsError for a repository or calendar that is none, and what `pick` raises.
    """
    settings = reading.load(environ)
    picked = await pick(settings, environ, load_catalogue(settings))
    notes = [f"Model: {picked.model}. {picked.why}"]
    if picked.practice:
        notes.append("The practice model is not an AI: fixed rules that know this one job.")
    found, told = await asyncio.to_thread(_repository, data, now(), repo)
    notes += [told] if told else []
    if calendar is None:
        calendar = data / "sample" / "calendar.ics"
        calendar.parent.mkdir(exist_ok=True)
        today = datetime.fromtimestamp(now(), UTC).astimezone(ZoneInfo(settings.zone)).date()
        write_sample_calendar(calendar, today, settings.zone)
        notes.append("Calendar: the sample that comes with Nod, dated today.")
    else:
        calendar = await asyncio.to_thread(_checked_calendar, calendar)
    own = {
        "NOD_HOME": str(data),
        "NOD_STORE": str(data / "nod.db"),
        "NOD_MODEL": picked.model,
        "NOD_MODE": "interactive",
        **({"NOD_CONFIG": str(settings.file)} if settings.file else {}),
    }
    return Plan(
        data=data,
        environ={**environ, **own},
        picked=picked,
        zone=settings.zone,
        repo=found,
        calendar=calendar,
        notes=tuple(notes),
    )


def _repository(data: Path, now: float, asked: Path | None) -> tuple[Path, str]:
    """Return the repository to read, and a sentence when it is the sample."""
    found = sample.find_repository(asked or Path.cwd())
    if found is not None:
        return found, f"Repository: {found}."
    if asked is not None:
        raise SettingsError(
            f"There is no git repository at {asked}, or git is not installed.",
            "Name another with --repo, or leave it out to see the sample.",
        )
    folder = data / "sample" / "ferry"
    if sample.make_repository(folder, now):
        return folder, "Repository: here is none, so a sample was made."
    history = folder / "history.txt"
    return history, "Repository: git is not installed, so the sample's written history is read."


def _checked_calendar(path: Path) -> Path:
    try:
        text = path.expanduser().read_bytes()
    except OSError as error:
        raise SettingsError(
            f"The calendar {path} cannot be read ({error.strerror}).",
            "Name another, or leave it out.",
        ) from error
    if b"BEGIN:VCALENDAR" not in text[:4096]:
        raise SettingsError(
            f"{path} is no iCalendar file.", "Export your calendar as .ics, or leave it out."
        )
    return path.expanduser().resolve()


async def show(
    environ: Mapping[str, str],
    data: Path,
    repo: Path | None,
    calendar: Path | None,
    *,
    yes: bool,
    say: Say,
) -> bool:
    """Run the demo in the empty folder `data`; True: everything was as it should be.

    Raises NodError for bad input, and when there is nobody to answer.
    """
    if not yes and not sys.stdin.isatty():
        raise NodError("There is no terminal to answer the card at.", "Say --yes.")
    plan = await make_plan(environ, data, system_now, repo, calendar)

    async def ask() -> str:
        if yes:
            say("  --yes: approved without asking you.")
            return "a"
        say("  Press a to approve, d to deny.")
        while (key := (await asyncio.to_thread(typer.getchar)).lower()) not in ("a", "d"):
            pass
        return key

    return await Demo(plan, system_now, say, ask).run()


class Demo:
    """One showing; `run` returns True when everything was as it should be."""

    def __init__(self, plan: Plan, now: Now, say: Say, ask: Ask) -> None:
        self._plan = plan
        self._now = now
        self._say = say
        self._ask = ask
        self._socket = plan.data / "nod.sock"
        self._seen = 0  # place in the run's log that was shown
        self._failed: list[str] = []

    async def run(self) -> bool:
        """Show it all; the child process never outlives this call. Raises NodError."""
        for note in self._plan.notes:
            self._say(note)
        await self._schedule()
        self._start()
        try:
            store = await open_store(str(self._plan.data / "nod.db"), read_only=True)
            try:
                async with asyncio.timeout(_RUN):
                    session = await self._work(store)
                await self._report(store, session)
            finally:
                await store.close()
        except TimeoutError:
            raise NodError(
                f"The run did not end within {_RUN / 60:.0f} minutes.",
                f"See {self._plan.data / 'serve.log'}.",
            ) from None
        finally:
            with suppress(ProcessLookupError):
                await self._child.stop()
        return not self._failed

    # -- the run

    async def _schedule(self) -> None:
        """Add the schedule and make it due now, so that the clock fires it like any other."""
        store = await open_store(str(self._plan.data / "nod.db"))
        try:
            added = await store.write(self._add)
        finally:
            await store.close()
        self._step(f"Scheduled: '{added.title}', {added.cron} ({added.zone}). It is due now.")

    def _add(self, tx: Tx) -> schedules.Schedule:
        plan, now = self._plan, self._now()
        people.seed_console(tx, TENANT, now)
        prompt = Personas.load().prompt(DEFAULT, "morning-briefing")
        added = schedules.add(
            tx,
            tenant=TENANT,
            owner=people.CONSOLE,
            title=prompt.title,
            when=When(cron="0 8 * * 1-5", zone=plan.zone),
            instructions=prompt.fill(
                repo=str(plan.repo), calendar=str(plan.calendar), report_to=REPORT_TO
            ),
            home="console:main",
            persona=DEFAULT,
            model=plan.picked.model,
            now=now,
        )
        folders = [Root(path=plan.repo), Root(path=plan.calendar)]
        thing = grants.of_schedule(added.id)
        grants.give_folders(tx, TENANT, thing, folders, by=people.CONSOLE, now=now)
        tx.run("schedule_enable", id=added.id, enabled=1, next=now, now=now)
        return added

    def _start(self) -> None:
        self._child = Child(self._plan.data, self._plan.environ)
        self._step(f"Started `nod serve` as process {self._child.pid}.")

    async def _work(self, store: Store) -> str:
        """Follow the run to its end; the first time it waits, its process is killed."""
        session = await self._until(store, _first_session)
        killed = False
        while True:
            await self._until(store, lambda tx: self._rests(tx, session))
            waiting = await store.read(lambda tx: inbox.pending_in(tx, session))
            if not waiting:
                return str(session)
            if not killed:
                self._kill()
                killed = True
            for prompt in waiting:
                await self._answer(prompt)

    async def _until(self, store: Store, look: Callable[[Tx], Any]) -> Any:
        """Return what `look` finds, once it finds something."""
        while True:
            found = await store.read(look)
            if found:
                return found
            self._child.check()
            await asyncio.sleep(_LOOK)

    def _rests(self, tx: Tx, session: str) -> bool:
        """Show what the log has, and say whether the turn waits or is over."""
        rows = tx.all("log_page", session=session, seq=self._seen, limit=1000)
        for event in map(event_from, rows):
            self._show(event)
            self._seen = event.seq
        row = tx.one("session_get", id=session)
        return row is not None and row["worker"] is None and row["wanted"] <= row["seen"]

    def _show(self, event: Event) -> None:
        if event.kind is Kind.TOOL_FINISHED and event.body["status"] == "error":
            self._failed.append(f"{event.body['name']}: {event.body['content']}")
        if event.kind is Kind.ERROR:
            self._failed.append(event.body["text"])
        if event.kind is Kind.MESSAGE:
            self._step(f"The clock fired it: session {event.session} is at work.")
            return
        for line in listings.told(event):
            self._say(f"    {line}")

    def _kill(self) -> None:
        self._child.kill()
        self._step(f"It waits for a nod, so process {self._child.pid} was killed (SIGKILL).")
        self._start()

    async def _answer(self, prompt: Prompt) -> None:
        """Show the card and take the answer, over the socket, as another surface would."""
        for line in ["", *self._card(prompt).splitlines(), ""]:
            self._say(f"  │ {line}")
        yes = await self._ask() == "a"
        command, words = ("approve", prompt.id) if yes else ("deny", f"{prompt.id} not today")
        if prompt.kind not in ("approval", "plan", "grant"):
            command, words = "answer", f"{prompt.id} {_SHRUG.get(prompt.kind, 'decide yourself')}"
        said = await self._sent(command, words)
        self._step(f"Answered from process {os.getpid()}, over the socket: {said}")

    async def _sent(self, command: str, words: str) -> str:
        """Send a command to the child, as soon as it listens."""
        while True:
            with suppress(socket.NotRunning):
                return await socket.ask(self._socket, command, words, thread=ANSWERS_FROM)
            self._child.check()
            await asyncio.sleep(_LOOK)

    def _card(self, prompt: Prompt) -> str:
        key = cards.token_key(self._plan.data)
        zone = ZoneInfo(self._plan.zone)
        card = cards.text_of(cards.card_of([prompt], "", key, str, zone), keys=False)
        return re.sub(r"\*\*|```|`", "", card)

    # -- the end

    async def _report(self, store: Store, session: str) -> None:
        plan = self._plan
        lines, sends, faults = await store.read(lambda tx: self._look_back(tx, session))
        transcript = plan.data / "transcript.txt"
        transcript.write_text("\n".join(lines) + "\n", encoding="utf-8")
        posts = _posts(plan.data)
        self._check(len(posts) == sends, f"{len(posts)} posts where {sends} should be")
        self._check(len(set(posts)) == len(posts), "a delivery was posted twice")
        self._check(not faults, f"audit: {' '.join(faults)}")
        self._step("Where everything is")
        briefing = sessions.files_of(plan.data, session) / "briefing.md"
        self._check(briefing.is_file(), "the briefing was not written")
        self._say(f"    briefing    {briefing}")
        for post in posts:
            self._say(f"    post        {plan.data / 'console' / 'standup.jsonl'} ({post})")
        self._say(f"    transcript  {transcript}")
        whole = "broken" if faults else "whole"
        self._say(f"    audit       {whole}; see NOD_HOME={plan.data} nod audit show {session}")
        for fault in self._failed:
            self._say(f"    ✗ {fault}")

    def _look_back(self, tx: Tx, session: str) -> tuple[list[str], int, list[str]]:
        """Return the transcript, how many sends succeeded, and the audit's faults."""
        lines = list(listings.transcript_of(tx, TENANT, session, self._plan.zone))
        done = [row for row in tx.all("calls_of", session=session) if row["name"] == "send_message"]
        sends = sum(row["status"] == "finished" for row in done)
        return lines, sends, audit.verify(tx, TENANT)

    def _check(self, holds: bool, fault: str) -> None:
        if not holds:
            self._failed.append(fault)

    def _step(self, text: str) -> None:
        self._say(f"\n● {text}")


def _first_session(tx: Tx) -> str | None:
    found = sessions.listed(tx, TENANT, 1)
    return found[0].id if found else None


def _posts(data: Path) -> list[str]:
    """Return the delivery ids in the file of the thread that is reported to."""
    file = data / "console" / "standup.jsonl"
    if not file.exists():
        return []
    entries = [loads(line) for line in file.read_bytes().splitlines()]
    return [entry["delivery"] for entry in entries if entry["op"] == "post"]
