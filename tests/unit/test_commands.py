"""Commands: one table, a nearest guess for what is not in it, and what each does to the session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot.commands import COMMANDS, run
from engine import inbox, sessions
from engine.canonical import loads
from engine.errors import NodError
from engine.inbox import Person, Prompt
from engine.schedule import schedules
from engine.store.base import Store
from tests.fakes.chat import Chat, chatting
from tests.fakes.scripted import ScriptedModel

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
        "help status inbox approve deny answer edit stop new retry undo mode model schedule "
        "threads sessions delete usage audit whoami rules files persona back settings role pair"
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
    [("audit", "member"), ("inbox", "guest"), ("mode auto", "operator"), ("stop", "member")],
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
        ("usage", "No model has been called"),
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
        ("model ollama:llama3", "switch", {"model": "ollama:llama3"}),
    ],
)
async def test_a_steering_command_is_mail(
    chat: Chat, given: str, kind: str, body: dict[str, Any]
) -> None:
    await chat.said("hello", "e1")
    await do(chat, given)
    assert (await mail(chat))[-1] == (kind, body)


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
