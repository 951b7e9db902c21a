"""Which line answers which card: every clause of the rule, through the real intake.

Ana owns the house and the session, Bo is an operator, Cy a member, Eve is unknown.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bot.surfaces.base import Attachment, Author, Line, Said
from engine import inbox, people
from engine.inbox import Prompt
from engine.store.base import Store, Tx
from tests.fakes.chat import Chat, chatting
from tests.fakes.scripted import ScriptedModel
from tests.fakes.surface import MemorySurface

NOW = 1_750_057_320.0
THREAD = "memory:T1/C1/1700.000100"
ANA, BO, CY, EVE = (Author(id=each, name=each) for each in ("ana", "bo", "cy", "eve"))
#: Posts of Nod: the cards of two prompts, and an answer.
CARD, OTHER, ANSWER = "memory/card-pa", "memory/card-pb", "memory/answer"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A line, what stood there before it, and what it does."""

    who: Author = ANA
    target: str = THREAD
    addressed: bool = False
    direct: bool = False
    reply_to: str = ""
    #: Who else had written in the thread.
    others: tuple[Author, ...] = ()
    #: Prompts: (id, card, kind, role that may answer), and those already decided.
    open: Sequence[tuple[str, str, str, str]] = (("pa", "one", "approval", "operator"),)
    decided: tuple[str, ...] = ()
    bot: bool = False
    #: Prompts that are answered by it; `asks`: Nod asks which; else the line is a message.
    answers: tuple[str, ...] = ()
    asks: bool = False


TWO = (("pa", "one", "approval", "operator"), ("pb", "two", "approval", "operator"))
ROWS = (("pa", "one", "approval", "operator"), ("pb", "one", "approval", "operator"))
CASES = {
    # its author may answer
    "the owner, alone in the thread": Case(answers=("pa",)),
    "an operator who mentions nod": Case(who=BO, addressed=True, answers=("pa",)),
    "a member who mentions nod may not": Case(who=CY, addressed=True),
    "a member who replies to the card may not": Case(who=CY, reply_to=CARD),
    "somebody unknown may not": Case(who=EVE, addressed=True),
    "a machine never": Case(who=BO, addressed=True, bot=True),
    # a reply to the card
    "a reply to the card among others": Case(reply_to=CARD, others=(BO,), answers=("pa",)),
    "an operator's reply to the card": Case(who=BO, reply_to=CARD, answers=("pa",)),
    "a reply to one of two cards": Case(reply_to=OTHER, open=TWO, answers=("pb",)),
    # a line that mentions Nod
    "a mention among others": Case(addressed=True, others=(BO,), answers=("pa",)),
    "a mention below an answer of nod": Case(
        addressed=True, reply_to=ANSWER, others=(BO,), answers=("pa",)
    ),
    "a mention below a card that is decided": Case(
        addressed=True, reply_to=CARD, others=(BO,), open=TWO, decided=("pa",), answers=("pb",)
    ),
    # any line in a DM or the console
    "a line in a direct message": Case(target="memory:T1/D1", direct=True, answers=("pa",)),
    "a line in a direct message that replies to an answer": Case(
        target="memory:T1/D1", direct=True, reply_to=ANSWER, answers=("pa",)
    ),
    "a line at the console": Case(
        who=Author(id=people.CONSOLE, name="ana"),
        target="console:main",
        addressed=True,
        answers=("pa",),
    ),
    # a thread where nobody else has written
    "a line among others is none": Case(others=(BO,)),
    "a line after somebody unknown wrote is none": Case(others=(EVE,)),
    "an operator's line after ana's is none": Case(who=BO, others=(ANA,)),
    "an operator alone in the thread of a run": Case(who=BO, answers=("pa",)),
    "a line below an answer among others is none": Case(reply_to=ANSWER, others=(BO,)),
    "a line below a decided card among others is none": Case(
        reply_to=CARD, others=(BO,), open=TWO, decided=("pa",)
    ),
    # what it means, and for which rows
    "a plan": Case(open=(("pa", "one", "plan", "operator"),), answers=("pa",)),
    "a grant": Case(open=(("pa", "one", "grant", "owner"),), answers=("pa",)),
    "a question": Case(open=(("pa", "one", "question", "member"),), answers=("pa",)),
    "all rows of the card": Case(open=ROWS, answers=("pa", "pb")),
    "the rows still open": Case(open=ROWS, decided=("pa",), answers=("pb",)),
    "the rows its author may answer": Case(
        who=BO,
        addressed=True,
        open=(("pa", "one", "approval", "owner"), ("pb", "one", "approval", "operator")),
        answers=("pb",),
    ),
    "an outcome takes buttons only": Case(open=(("pa", "one", "outcome", "operator"),)),
    # several cards
    "several cards: nod asks": Case(open=TWO, asks=True),
    "several cards and a mention: nod asks": Case(
        addressed=True, others=(BO,), open=TWO, asks=True
    ),
    "several cards, one decided": Case(open=TWO, decided=("pb",), answers=("pa",)),
    "several cards, one its author may answer": Case(
        who=CY,
        addressed=True,
        open=(("pa", "one", "approval", "operator"), ("pb", "two", "question", "member")),
        answers=("pb",),
    ),
    "a card and an outcome": Case(
        open=(("pa", "one", "approval", "operator"), ("pb", "two", "outcome", "operator")),
        answers=("pa",),
    ),
}


@pytest.fixture
async def chat(sqlite_store: Store, tmp_path: Path) -> AsyncIterator[Chat]:
    async with chatting(
        sqlite_store,
        tmp_path,
        ScriptedModel(),
        surfaces=[MemorySurface()],
        at_work=False,
        presenting=False,
        now=lambda: NOW,
    ) as made:
        await made.store.write(_admit)
        yield made


def _admit(tx: Tx) -> None:
    for author, role in ((ANA, "owner"), (BO, "operator"), (CY, "member")):
        people.add_person(
            tx,
            "local",
            "memory",
            author.id,
            name=author.name,
            role=role,
            by="console",
            now=NOW,
            principal=f"u-{author.id}",
        )


async def opened(chat: Chat, target: str) -> str:
    """Ana opens a session; its mailbox is empty."""
    owner = people.CONSOLE if target.startswith("console") else "u-ana"
    house = chat.context.house
    return await chat.store.write(lambda tx: house.open(tx, target, owner, NOW))


async def raised(chat: Chat, session: str, prompt: tuple[str, str, str, str]) -> None:
    """Ask something on a card, and show it."""
    id, card, kind, role = prompt
    asked = Prompt(
        id=id,
        tenant="local",
        session=session,
        kind=kind,
        subject=f"{session}/{id}",
        hash="ab" * 32,
        payload={"card": card, "title": "Do it?", "questions": [{"question": "Which?"}]},
        approvers={"role": role},
        created_at=NOW,
        deadline=NOW + 1000,
    )
    await chat.store.write(lambda tx: inbox.ask(tx, asked))
    await shown(chat, session, f"prompt:{id}", f"memory/card-{id}")


async def shown(chat: Chat, session: str, subject: str, ref: str) -> None:
    given: dict[str, Any] = {"tenant": "local", "session": session, "shown": "", "now": NOW}
    given |= {"id": f"d-{ref}", "subject": subject, "destination": THREAD, "ref": ref}
    await chat.store.write(lambda tx: tx.run("delivery_shown", **given))


async def statuses(chat: Chat, ids: Sequence[str]) -> dict[str, Prompt]:
    found = [await chat.store.read(lambda tx, id=id: inbox.get(tx, id)) for id in ids]
    return {each.id: each for each in found if each.status == "resolved"}


def said(text: str, event: str, who: Author, **changes: Any) -> Said:
    fields: dict[str, Any] = {"target": THREAD, "addressed": False, **changes}
    return Said(event=event, person=who, text=text, **fields)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_a_line_answers_what_it_may_and_nothing_else(chat: Chat, case: Case) -> None:
    session = await opened(chat, case.target)
    for number, other in enumerate(case.others):
        await chat.take(said("hello all", f"o{number}", other))
    for prompt in case.open:
        await raised(chat, session, prompt)
    await shown(chat, session, f"answer:{session}/1/1", ANSWER)
    operator = inbox.Person(id="u-bo", role="owner", name="bo")
    for id in case.decided:
        await chat.store.write(
            lambda tx, id=id: inbox.resolve(tx, id, {"kind": "once"}, operator, "memory", NOW)
        )
    before = len(await chat.rows("mail_waiting", session=session))
    receipt = await chat.take(
        said(
            "use the other one",
            "line",
            case.who,
            target=case.target,
            addressed=case.addressed,
            direct=case.direct,
            reply_to=case.reply_to,
            bot=case.bot,
        )
    )
    ids = [id for id, *_ in case.open if id not in case.decided]
    resolved = await statuses(chat, ids)
    assert set(resolved) == set(case.answers)
    for prompt in resolved.values():
        wanted = {"kind": "deny", "reason": "use the other one"}
        if prompt.kind == "question":
            wanted = {"kind": "answer", "text": "use the other one"}
        assert prompt.answer == wanted
    after = await chat.rows("mail_waiting", session=session)
    messages = 0 if case.answers or case.asks or case.who == EVE else 1
    assert len(after) - before == messages, "every other line is a message"
    assert ("Which one" in receipt.text) == case.asks


async def test_a_line_with_a_file_is_a_message(chat: Chat) -> None:
    """What is in the file cannot be a reason; the card stays open, and the file comes."""
    session = await opened(chat, THREAD)
    await raised(chat, session, ("pa", "one", "approval", "operator"))

    async def fetch(path: Path) -> None:
        path.write_bytes(b"x")

    file = Attachment(name="a.txt", media_type="text/plain", bytes=1, fetch=fetch)
    await chat.take(said("use this", "line", ANA, files=(file,)))
    assert await statuses(chat, ["pa"]) == {}
    assert len(await chat.rows("mail_waiting", session=session)) == 1


async def test_own_lines_before_the_mention_leave_the_thread_ones_own(
    sqlite_store: Store, tmp_path: Path
) -> None:
    place = MemorySurface()
    place.lines[THREAD] = [Line(ref="l1", at=NOW - 5, by="ana", text="hm", author="ana")]
    async with chatting(
        sqlite_store,
        tmp_path,
        ScriptedModel(),
        surfaces=[place],
        at_work=False,
        presenting=False,
        now=lambda: NOW,
    ) as chat:
        await chat.store.write(_admit)
        receipt = await chat.take(said("@Nod go", "e1", ANA, addressed=True))
        await raised(chat, str(receipt.session), ("pa", "one", "approval", "operator"))
        await chat.take(said("no", "e2", ANA))
        assert set(await statuses(chat, ["pa"])) == {"pa"}


async def test_a_line_answers_only_cards_of_its_own_session(chat: Chat) -> None:
    """A card of another session that is shown here takes a reply to it, and no bare line."""
    await opened(chat, "memory:T1/D1")
    other = await opened(chat, "memory:T1/C2/1800.1")
    await raised(chat, other, ("pa", "one", "approval", "operator"))
    here = {"target": "memory:T1/D1", "direct": True, "addressed": True}
    await chat.take(said("no", "e1", ANA, **here))
    assert await statuses(chat, ["pa"]) == {}
    await chat.take(said("no", "e2", ANA, reply_to=CARD, **here))
    assert set(await statuses(chat, ["pa"])) == {"pa"}
