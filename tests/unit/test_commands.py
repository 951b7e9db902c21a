"""Commands: one table, a nearest guess for what is not in it, and what each does to the session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot import cards
from bot.commands.table import COMMANDS, run
from engine import inbox, people, sessions
from engine.canonical import loads
from engine.errors import NodError, SessionError
from engine.inbox import Person, Prompt
from engine.permissions import rules
from engine.sandbox.local import LocalExecutor
from engine.schedule import jobs, schedules
from engine.schedule.words import When
from engine.store.base import Store, Tx
from engine.tools.base import Risk
from tests.fakes.chat import OWNER, Chat, chatting
from tests.fakes.jobs import ended, until
from tests.fakes.scripted import ScriptedModel, call, calls
from tests.fakes.surface import MemorySurface
from tests.fakes.world import probe

NOW = 1_750_057_320.0


@pytest.fixture
async def chat(sqlite_store: Store, tmp_path: Path) -> AsyncIterator[Chat]:
    async with chatting(
        sqlite_store, tmp_path, ScriptedModel(), at_work=False, presenting=False, now=lambda: NOW
    ) as made:
        yield made


async def do(chat: Chat, line: str, role: str = "owner", by: str = "console") -> str:
    name, _, arguments = line.partition(" ")
    context = replace(chat.context, person=Person(id=by, role=role, name=by))
    return await run(context, name, arguments)


async def session_of(chat: Chat) -> sessions.Session:
    found = await chat.store.read(lambda tx: sessions.find_thread(tx, "local", "console:main"))
    return await chat.store.read(lambda tx: sessions.get(tx, str(found)))


async def mail(chat: Chat) -> list[tuple[str, Any]]:
    session = await session_of(chat)
    rows = await chat.rows("mail_waiting", session=session.id)
    return [(row["kind"], loads(row["body"])) for row in rows]


async def ask(chat: Chat, kind: str, **payload: Any) -> Prompt:
    prompt = Prompt(
        id=f"p{kind}",
        tenant="local",
        session=(await session_of(chat)).id,
        kind=kind,
        subject="s",
        payload={"title": "Sure?", **payload},
        approvers={"role": "operator"},
        created_at=NOW,
        deadline=NOW + 100,
    )
    return await chat.store.write(lambda tx: inbox.ask(tx, prompt))


async def answer(chat: Chat, prompt: Prompt) -> Any:
    return (await chat.store.read(lambda tx: inbox.get(tx, prompt.id))).answer


# -- the table


def test_every_command_is_in_the_help_and_has_a_line() -> None:
    for name, command in COMMANDS.items():
        assert (command.name, bool(command.help)) == (name, True)
    wanted = (
        "help status inbox approve deny answer edit stop new retry undo mode model schedule jobs "
        "watch wakes hook mcp connect disconnect share unshare connectors "
        "budget digest threads sessions delete usage audit whoami "
        "rules files persona back settings hand role pair"
    )
    assert list(COMMANDS) == wanted.split()


async def test_help_lists_every_command(chat: Chat) -> None:
    text = await do(chat, "help")
    assert all(f"`/{name}" in text for name in COMMANDS)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param("aprove x", "/approve", id="nearest"),
        pytest.param("zzz", "/help", id="nothing near"),
        pytest.param("approve", "/approve ID", id="too few"),
        pytest.param("stop now", "/stop", id="too many"),
        pytest.param("mode yolo", "interactive", id="no such mode"),
        pytest.param("mode plan write_file=ask", "custom", id="a list for another mode"),
        pytest.param("mode custom write_file", "TOOL=ANSWER", id="no answer"),
        pytest.param("mode custom write_file=maybe", "refuse", id="no such answer"),
        pytest.param("mode custom write_fiel=ask", "write_file", id="no such tool"),
        pytest.param("mode custom run_shell=allow", "allowlist", id="a program unasked"),
        pytest.param("approve nosuch", "nosuch", id="no such prompt"),
        pytest.param("usage lots", "days", id="no number"),
        pytest.param("schedule add", "remove ID", id="no schedule"),
        pytest.param("model grok:", "", id="no model"),
    ],
)
async def test_what_does_not_fit_is_told_with_the_next_step(
    chat: Chat, given: str, said: str
) -> None:
    await chat.said("hello", "e1")
    with pytest.raises(NodError) as caught:
        await do(chat, given)
    assert said in str(caught.value)


async def test_a_thread_without_a_session_says_so(chat: Chat) -> None:
    with pytest.raises(NodError, match="Nothing was said"):
        await do(chat, "status")


@pytest.mark.parametrize(
    ("given", "role"),
    [
        ("audit", "member"),
        ("inbox", "guest"),
        ("mode auto", "operator"),
        ("mode custom send_message=allow", "operator"),
        ("stop", "member"),
    ],
)
async def test_roles_are_kept(chat: Chat, given: str, role: str) -> None:
    await chat.said("hello", "e1")
    with pytest.raises(NodError):
        await do(chat, given, role=role, by="u7")
    assert [kind for kind, _ in await mail(chat)] == ["message"]


# -- looking


@pytest.mark.parametrize(
    ("given", "shows"),
    [
        ("status", "Mode interactive, model practice:test"),
        ("inbox", "Nothing waits for you."),
        ("threads", "console:main"),
        ("sessions", "console:main"),
        ("usage", "Today, Mon 16 Jun (UTC): 0 calls"),
        ("usage 7", "No model has been called"),
        ("audit", "admitted"),
        ("audit verify", "The audit is whole"),
        ("whoami", "owner, in console:main"),
        ("mode", "Mode interactive"),
        ("model", "Model practice:test"),
        ("schedule", "There are no schedules"),
    ],
)
async def test_looking_shows_and_changes_nothing(chat: Chat, given: str, shows: str) -> None:
    await chat.said("hello", "e1")
    assert shows in await do(chat, given)
    assert [kind for kind, _ in await mail(chat)] == ["message"]


async def test_inbox_shows_all_of_one(chat: Chat) -> None:
    await chat.said("hello", "e1")
    await ask(chat, "approval", tool="send_message", arguments={"text": "x" * 5_000})
    assert "x" * 5_000 in await do(chat, "inbox papp")


async def test_the_inbox_is_of_one_person(chat: Chat) -> None:
    """Nobody reads the card of somebody else, in the list or whole."""
    await chat.said("hello", "e1")
    await ask(chat, "approval", tool="send_message", arguments={"text": "secret"})
    assert "papproval" in await do(chat, "inbox", role="operator", by="u7")
    assert "papproval" not in await do(chat, "inbox", role="member", by="u7")
    with pytest.raises(NodError, match="not yours to look into"):
        await do(chat, "inbox papproval", role="member", by="u7")


async def test_the_inbox_shows_what_runs_and_what_is_planned_too(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(["Good morning."], hold=asyncio.Event())
    async with chatting(sqlite_store, tmp_path, model) as chat:
        await chat.said("hello", "e1")
        await model.streamed.wait()
        await chat.store.write(
            lambda tx: schedules.add(
                tx,
                tenant="local",
                owner="console",
                title="Briefing",
                when=When(cron="0 9 * * *", zone="UTC"),
                instructions="Prepare it.",
                home="console:main",
                persona="cowork",
                model="practice:rules",
                now=NOW,
            )
        )
        shown = await do(chat, "inbox")
        assert "At work:" in shown and (await session_of(chat)).id in shown
        assert "Planned:" in shown and "Briefing" in shown
        assert await do(chat, "inbox", role="member", by="u7") == "Nothing waits for you."
        assert model.hold is not None
        model.hold.set()


# -- answering


@pytest.mark.parametrize(
    ("kind", "line", "expected"),
    [
        ("approval", "approve papproval", {"kind": "once"}),
        ("approval", "deny papproval ask Bo, don't send", {"kind": "deny"}),
        ("plan", "approve pplan", {"kind": "approve", "mode": "interactive"}),
        ("plan", "approve pplan auto", {"kind": "approve", "mode": "auto"}),
        ("grant", "approve pgrant", {"kind": "approve"}),
        ("notice", "approve pnotice", {"kind": "seen"}),
        ("notice", "answer pnotice retry", {"kind": "retry"}),
        ("outcome", "answer poutcome run", {"kind": "run"}),
        ("question", "answer pquestion because I say so", {"kind": "answer"}),
        ("question", "deny pquestion", {"kind": "deny"}),
    ],
)
async def test_a_prompt_is_answered_by_command(
    chat: Chat, kind: str, line: str, expected: dict[str, Any]
) -> None:
    await chat.said("hello", "e1")
    questions = [{"key": "k", "question": "Why?", "options": []}]
    prompt = await ask(chat, kind, questions=questions)
    await do(chat, line)
    found = await answer(chat, prompt)
    assert {name: found[name] for name in expected} == expected


async def test_a_denial_keeps_its_words(chat: Chat) -> None:
    await chat.said("hello", "e1")
    prompt = await ask(chat, "approval")
    await do(chat, "deny papproval ask Bo, don't send")
    assert (await answer(chat, prompt))["reason"] == "ask Bo, don't send"


async def test_the_later_answer_learns_who_decided(chat: Chat) -> None:
    await chat.said("hello", "e1")
    await ask(chat, "approval")
    await do(chat, "deny papproval")
    said = await do(chat, "approve papproval")
    assert said == "Already decided. Denied by @console, 07:02."


async def test_an_outcome_is_never_just_approved(chat: Chat) -> None:
    await chat.said("hello", "e1")
    prompt = await ask(chat, "outcome")
    with pytest.raises(NodError, match="happened"):
        await do(chat, "approve poutcome")
    assert await answer(chat, prompt) is None


async def test_retry_of_a_notice_starts_a_turn(chat: Chat) -> None:
    await chat.said("hello", "e1")
    await ask(chat, "notice", retry=True)
    await do(chat, "answer pnotice retry")
    assert [kind for kind, _ in await mail(chat)] == ["message", "retry"]


# -- steering


@pytest.mark.parametrize(
    ("given", "kind", "body"),
    [
        ("stop", "stop", {"reason": "stopped"}),
        ("undo", "undo", {}),
        ("mode plan", "switch", {"mode": "plan"}),
        (
            "mode custom write_file=ask send_message=refuse",
            "switch",
            {"mode": "custom", "custom": {"write_file": "ask", "send_message": "refuse"}},
        ),
        ("model ollama:llama3", "switch", {"model": "ollama:llama3"}),
    ],
)
async def test_a_steering_command_is_mail(
    chat: Chat, given: str, kind: str, body: dict[str, Any]
) -> None:
    await chat.said("hello", "e1")
    await do(chat, given)
    assert (await mail(chat))[-1] == (kind, body)


async def test_the_list_of_mode_custom_grows_and_shrinks_by_what_is_named(chat: Chat) -> None:
    await chat.said("hello", "e1")
    await do(chat, "mode custom write_file=ask")
    await do(chat, "mode custom send_message=allow write_file=default list_files=refuse")
    kind, body = (await mail(chat))[-1]
    wanted = {"send_message": "allow", "list_files": "refuse"}
    assert (kind, body) == ("switch", {"mode": "custom", "custom": wanted})


async def test_retry_is_a_note_to_try_again(chat: Chat) -> None:
    await chat.said("hello", "e1")
    await do(chat, "retry")
    kind, body = (await mail(chat))[-1]
    assert kind == "retry"
    assert "try again" in body["message"]["content"]


async def test_new_binds_the_thread_to_a_new_session(chat: Chat) -> None:
    await chat.said("hello", "e1")
    old = await session_of(chat)
    said = await do(chat, "new")
    assert (await session_of(chat)).id != old.id
    assert old.id in said


async def test_a_member_takes_nobodys_thread_away_with_a_new_session(chat: Chat) -> None:
    await chat.said("hello", "e1")
    before = await session_of(chat)
    with pytest.raises(SessionError, match="belongs to somebody else"):
        await do(chat, "new", "member", "bo")
    assert (await session_of(chat)).id == before.id
    await do(chat, "new", "operator", "cy")
    assert (await session_of(chat)).owner == "cy"


async def test_an_unknown_model_says_how_little_is_known(chat: Chat) -> None:
    await chat.said("hello", "e1")
    assert "not in the catalogue" in await do(chat, "model ollama:my-own-thing")


async def test_a_schedule_is_added_listed_and_removed(chat: Chat) -> None:
    added = await do(chat, 'schedule add "0 8 * * 1-5" Prepare the briefing')
    (made,) = await chat.store.read(lambda tx: schedules.listed(tx, "local"))
    assert (made.cron, made.instructions) == ("0 8 * * 1-5", "Prepare the briefing")
    assert made.id in added
    assert made.id in await do(chat, "schedule list")
    await do(chat, f"schedule remove {made.id[:6]}")
    assert "There are no schedules" in await do(chat, "schedule")


# -- the house


async def a_rule(chat: Chat, principal: str = "console") -> str:
    """Keep a standing rule and return its id."""

    def work(tx: Tx) -> str:
        return rules.make_rule(
            tx,
            tenant="local",
            session=None,
            principal=principal,
            tool="send_message",
            risk=Risk.EXTERNAL,
            target=["slack:T1/C1"],
            uses=3,
            expires_at=NOW + 9e5,
            taint=(),
            made_under=(),
            now=NOW,
        ).id

    return await chat.store.write(work)


async def test_standing_rules_are_listed_and_ended(chat: Chat) -> None:
    rule = await a_rule(chat)
    assert "`slack:T1/C1`, until 2025-06-26, 3 uses left" in await do(chat, "rules")
    assert "is revoked" in await do(chat, f"rules revoke {rule[:8]}")
    assert "No standing rules" in await do(chat, "rules list")
    with pytest.raises(NodError, match="No rule"):
        await do(chat, f"rules revoke {rule}")


async def test_a_member_sees_and_ends_only_their_own_rules(chat: Chat) -> None:
    rule = await a_rule(chat)
    assert "No standing rules" in await do(chat, "rules", "member", "bo")
    with pytest.raises(NodError, match="No rule"):
        await do(chat, f"rules revoke {rule}", "member", "bo")


async def test_the_files_of_a_session_are_listed(chat: Chat) -> None:
    await chat.said("hello", "e1")
    assert "no files yet" in await do(chat, "files")
    folder = sessions.files_of(chat.data, (await session_of(chat)).id)
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "a b.txt").write_text("12345")
    (folder / "link").symlink_to("/etc/passwd")
    assert await do(chat, "files") == "`in/a b.txt` 5 bytes"


async def test_another_persona_is_another_session(chat: Chat) -> None:
    await chat.said("hello", "e1")
    before = (await session_of(chat)).id
    assert "Persona cowork" in await do(chat, "persona")
    with pytest.raises(NodError):
        await do(chat, "persona nobody")
    with pytest.raises(NodError, match="Only an owner"):
        await do(chat, "persona cowork", "member")
    await do(chat, "persona cowork")
    assert (await session_of(chat)).id != before
    assert before in await do(chat, "back")
    assert (await session_of(chat)).id == before


async def test_back_without_a_session_before_is_told(chat: Chat) -> None:
    await chat.said("hello", "e1")
    with pytest.raises(NodError, match="no session before"):
        await do(chat, "back")


async def test_settings_are_shown_to_all_and_changed_by_operators(chat: Chat) -> None:
    assert "not needed" in await do(chat, "settings", "member")
    with pytest.raises(NodError, match="operator"):
        await do(chat, "settings mention on", "member")
    await do(chat, "settings mention on", "operator")
    assert ": needed" in await do(chat, "settings")
    with pytest.raises(NodError, match=r"mention on\|off"):
        await do(chat, "settings model on")


async def bo(chat: Chat, role: str = "member", place: str = "") -> str:
    """Let Bo in and return their id."""

    def work(tx: Tx) -> str:
        person = people.add_person(
            tx, "local", "memory", "7", name="Bo", role=role, by="console", now=NOW
        )
        if place:
            people.seen_at(tx, "local", "memory", "7", place, NOW)
        return person.id

    return await chat.store.write(work)


async def test_a_role_counts_from_now(chat: Chat) -> None:
    person = await bo(chat)
    await do(chat, f"role {person} operator")
    found = await chat.store.read(lambda tx: people.get(tx, "local", person))
    assert found is not None
    assert found.role == "operator"
    for line, what in (
        (f"role {person} king", "no role"),
        ("role console guest", "stays its owner"),
        ("role nobody member", "Nobody has the id"),
    ):
        with pytest.raises(NodError, match=what):
            await do(chat, line)
    with pytest.raises(NodError, match="needs the role owner"):
        await do(chat, f"role {person} owner", "operator")


@pytest.mark.parametrize(
    ("role", "place"), [("member", "memory:D7"), ("operator", "")], ids=["may not", "nowhere"]
)
async def test_a_card_is_handed_only_to_who_may_and_can_answer(
    chat: Chat, role: str, place: str
) -> None:
    await chat.said("hello", "e1")
    await bo(chat, role, place)
    prompt = await ask(chat, "approval", tool="send_message")
    with pytest.raises(NodError, match="may not answer this, or has never written"):
        await do(chat, f"hand {prompt.id} Bo")


async def test_a_card_handed_over_is_shown_there_and_decided_everywhere(
    sqlite_store: Store, tmp_path: Path
) -> None:
    place = MemorySurface()
    model = ScriptedModel([calls(call("send", label="a")), "Done."])
    tools = [probe("send", Risk.EXTERNAL, [])]
    async with chatting(sqlite_store, tmp_path, model, surfaces=[place], tools=tools) as chat:
        await bo(chat, "operator", "memory:D7")
        receipt = await chat.said("hello", "e1")
        await chat.shown(str(receipt.session))
        (prompt,) = await chat.world.pending()
        assert "has the card too" in await do(chat, f"hand {prompt.id} @bo")
        await place.until(lambda surface: len(surface.of("memory:D7")) == 1)
        chat.presenter.poke()
        await chat.world.answer(prompt, "once")
        await chat.shown(str(receipt.session))
        await place.until(lambda surface: "Approved by" in surface.of("memory:D7")[0])


async def test_a_tool_of_the_quorum_needs_two_people(sqlite_store: Store, tmp_path: Path) -> None:
    model = ScriptedModel([calls(call("send", label="a")), "Done."])
    log: list[Any] = []
    tools = [probe("send", Risk.EXTERNAL, log)]
    async with chatting(sqlite_store, tmp_path, model, tools=tools, quorum=("send",)) as chat:
        person = await bo(chat, "operator")
        receipt = await chat.said("hello", "e1")
        await chat.shown(str(receipt.session))
        (prompt,) = await chat.world.pending()
        assert "Needs: 2 people" in cards.full_text(prompt)
        assert "1 of 2" in await do(chat, f"approve {prompt.id}")
        assert "1 of 2" in await do(chat, f"approve {prompt.id}")  # the same person again
        assert log == []
        assert "Approved" in await do(chat, f"approve {prompt.id}", "operator", person)
        await chat.shown(str(receipt.session))
        assert [word for word, *_ in log] == ["start", "end"]


@pytest.mark.parametrize("command", ["sessions", "threads"])
async def test_a_member_is_shown_nobody_elses_sessions(chat: Chat, command: str) -> None:
    await chat.said("hello", "e1")
    assert "console:main" in await do(chat, command)
    assert "console:main" not in await do(chat, command, role="member", by="u7")


# -- background jobs


async def started(chat: Chat, command: str) -> jobs.Job:
    """Start a job of this thread's session, as its tool would."""
    session = await session_of(chat)
    name, now = jobs.job_id(command), chat.context.house.now()
    job = await chat.store.write(lambda tx: jobs.add(tx, session, name, command, 60.0, now))
    folder = jobs.folder_of(chat.data, session.id, job.id)
    await LocalExecutor(chat.data).start(command, folder, 60.0)
    return job


async def test_jobs_are_listed_read_and_stopped_in_their_thread(chat: Chat) -> None:
    await chat.said("hello", "e1")
    assert await do(chat, "jobs") == "This thread's session has started no job."
    job = await started(chat, "echo up; echo '```'; exec sleep 999")
    folder = jobs.folder_of(chat.data, job.session, job.id)
    await until(lambda: any(each.stat().st_size > 3 for each in folder.glob("out-*")))
    assert f"Job {job.id} has been running for" in await do(chat, "jobs")
    assert f"Job {job.id} has been running for" in await do(chat, "status")
    assert await do(chat, "stop") == "Stopping. Background jobs go on: 1, see /jobs."
    assert (await do(chat, "jobs all")).endswith(f"in {job.session}")
    assert (await do(chat, f"jobs {job.id[:5]}")).endswith("\n````\nup\n```\n````")
    await chat.said("hello", "e2", target="console:other")
    context = replace(chat.context, person=OWNER, target="console:other")
    assert "was stopped" in await run(context, "jobs", f"stop {job.id}")
    assert (await ended(folder)).how == "stopped"
    assert "was stopped" in await do(chat, f"jobs stop {job.id}")


@pytest.mark.parametrize(
    ("line", "by", "role", "says"),
    [
        pytest.param("jobs jx", "console", "owner", "There is no job 'jx'", id="unknown"),
        pytest.param("jobs kill jx", "console", "owner", "was not understood", id="verb"),
        pytest.param("jobs", "bo", "member", "belongs to somebody else", id="not-theirs"),
        pytest.param("jobs all", "bo", "operator", "needs the role owner", id="all-of-them"),
    ],
)
async def test_a_job_that_is_not_there_or_not_yours_is_refused(
    chat: Chat, line: str, by: str, role: str, says: str
) -> None:
    await chat.said("hello", "e1")
    with pytest.raises(NodError, match=says):
        await do(chat, line, role, by)
