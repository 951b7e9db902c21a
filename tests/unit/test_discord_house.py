"""A whole Nod on Discord: what it takes once, keeps over restarts, and keeps apart."""

from __future__ import annotations

import asyncio
from pathlib import Path

from engine import inbox
from engine.models.base import Request
from engine.store.base import Store, Tx
from tests.fakes.discord import FakeDiscord, discord
from tests.fakes.scripted import ScriptedModel
from tests.unit.discord_scene import SEND, Scene, scene


def mention(fake: FakeDiscord) -> str:
    return f"<@{fake.me['id']}>"


async def test_a_message_told_again_is_no_second_turn_also_after_a_restart(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with discord() as fake:
        async with scene(sqlite_store, tmp_path, "Hi.", "Bye.", fake=fake) as at:
            said = await fake.say(fake.general, at.ana, f"{mention(fake)} hello")
            await fake.until(lambda: fake.shown(said["id"]) == ["Hi."])
            await fake.again(said)
        async with scene(sqlite_store, tmp_path, "Bye.", fake=fake):
            await fake.again(said)
            await fake.say(said["id"], at.ana, "bye")
            await fake.until(lambda: len(fake.shown(said["id"])) == 2)
        assert fake.shown(said["id"]) == ["Hi.", "Bye."]


async def test_ten_messages_during_a_turn_are_all_there_after_a_restart_in_order(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with discord() as fake:
        busy = ScriptedModel(["Never said."], hold=asyncio.Event())
        async with scene(sqlite_store, tmp_path, fake=fake, model=busy) as at:
            said = await fake.say(fake.general, at.ana, f"{mention(fake)} hello")
            await fake.until(lambda: fake.typed == [said["id"]])
            for number in range(10):
                await fake.say(said["id"], at.ana, f"and {number}")
            await mailed(at, "and 9")
        model = ScriptedModel(then="All read.")
        async with scene(sqlite_store, tmp_path, fake=fake, model=model) as again:
            again.chat.world.dispatcher.enqueue(await session(again))
            await fake.until(lambda: "All read." in fake.shown(said["id"]))
            heard = str(model.requests[-1].messages)
    places = [heard.index(f"and {number}") for number in range(10)]
    assert places == sorted(places)


async def session(at: Scene) -> str:
    """Return the latest session; empty: there is none."""
    rows = await at.chat.rows("session_list", tenant="local", limit=1)
    return str(rows[0]["id"]) if rows else ""


async def mailed(at: Scene, text: str) -> str:
    """Wait until the text lies in the latest session's mailbox; return all that lies there."""
    async with asyncio.timeout(10):
        while True:
            rows = await at.chat.rows("mail_latest", session=await session(at), limit=20)
            found = str([row["body"] for row in rows])
            if text in found:
                return found
            await asyncio.sleep(0.01)


async def test_a_card_that_nobody_answers_in_time_says_so_and_loses_its_buttons(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with scene(sqlite_store, tmp_path, SEND, "Then not.") as at:
        card = await at.ask()
        button = {**card, "components": list(card["components"])}
        (prompt,) = await at.pending()

        def expire(tx: Tx) -> None:
            inbox.expire(tx, prompt.deadline + 1.0)

        await at.chat.store.write(expire)
        at.chat.world.dispatcher.enqueue(str(prompt.session))
        assert "No answer in time" in await at.decided(card)
        late = await at.fake.press(button, "Approve", at.ana)
        assert (await at.told(late)).startswith("Too late")


async def test_an_edit_before_it_is_read_replaces_what_was_said(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with scene(sqlite_store, tmp_path, at_work=False) as at:
        said = await at.fake.say(at.fake.general, at.ana, f"{mention(at.fake)} helo")
        await at.fake.change(said, f"{mention(at.fake)} hello")
        assert "helo" not in await mailed(at, "hello")


async def test_twenty_people_in_ten_threads_each_get_their_own_answer_in_order(
    sqlite_store: Store, tmp_path: Path
) -> None:
    def step(request: Request) -> str:
        asked = [str(each["content"]) for each in request.messages if each["role"] == "user"]
        return "heard: " + " | ".join(each.partition("\n")[0] for each in asked)

    async with scene(sqlite_store, tmp_path, model=ScriptedModel(then=step)) as at:
        people = [at.fake.user(f"p{number}") for number in range(20)]
        await asyncio.gather(*(at.admit(each) for each in people))
        places = [at.fake.channel(f"c{number}") for number in range(2)]
        for place in places:
            await at.fake.dispatch("CHANNEL_CREATE", at.fake.channels[place])
        threads = []
        for number in range(10):
            text = f"{mention(at.fake)} thread {number}"
            threads.append(await at.fake.say(places[number % 2], people[number], text))
        await at.fake.until(lambda: all(at.fake.shown(each["id"]) for each in threads), 30)
        for number, each in enumerate(threads):
            await at.fake.say(each["id"], people[10 + number], f"more of {number}")
        await at.fake.until(
            lambda: all("more of" in at.fake.shown(each["id"])[-1] for each in threads), 30
        )
        for number, each in enumerate(threads):
            shown = at.fake.shown(each["id"])
            assert shown[0] == f"heard: thread {number}"
            assert shown[-1] == f"heard: thread {number} | more of {number}"


async def test_a_mention_in_a_thread_of_others_brings_their_lines_as_theirs(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(["Noted."])
    async with scene(sqlite_store, tmp_path, model=model) as at:
        begun = await at.fake.say(at.fake.general, at.bob, "When does the ferry sail?")
        thread = await at.fake.branch(begun, "ferry")
        await at.fake.say(thread, at.eve, "At nine, they say.")
        await at.fake.say(thread, at.ana, f"{mention(at.fake)} is that so?")
        await at.fake.until(lambda: at.fake.shown(thread))
    heard = str(model.requests[0].messages)
    assert "> Bob: When does the ferry sail?" in heard
    assert "> Eve (not a member): At nine, they say." in heard
    assert "is that so?" in heard


async def test_a_file_in_chat_lands_in_the_sessions_folder_and_the_model_is_told(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(["Read."])
    async with scene(sqlite_store, tmp_path, model=model) as at:
        private = at.fake.direct(at.ana)
        await at.fake.say(private, at.ana, "here", files=[("plan.txt", "text/plain", b"sail")])
        await at.fake.until(lambda: at.fake.shown(private))
    assert "in/plan.txt" in str(model.requests[0].messages)
    (landed,) = tmp_path.glob("sessions/*/files/in/plan.txt")
    assert landed.read_bytes() == b"sail"


async def test_a_command_in_a_channel_is_for_the_persons_own_thread_there(
    sqlite_store: Store, tmp_path: Path
) -> None:
    model = ScriptedModel(["Never said."], hold=asyncio.Event())
    async with scene(sqlite_store, tmp_path, model=model) as at:
        said = await at.fake.say(at.fake.general, at.ana, f"<@{at.fake.me['id']}> begin")
        await model.streamed.wait()
        bobs = await at.fake.command(at.fake.general, at.bob, "stop")
        assert "Nothing was said" in await at.told(bobs)
        await at.fake.command(at.fake.general, at.ana, "stop")
        await at.fake.until(lambda: "Stopped" in str(at.fake.shown(said["id"])))


async def test_a_budget_is_asked_about_on_a_card_and_raised_with_one_press(
    sqlite_store: Store, tmp_path: Path
) -> None:
    async with scene(sqlite_store, tmp_path, "One.", "Two.") as at:
        budget = await at.fake.command(at.fake.general, at.ana, "budget", "all 1 call a day")
        assert "1 call a day for everything" in await at.told(budget)
        said = await at.fake.say(at.fake.general, at.ana, f"{mention(at.fake)} hi")
        await at.fake.until(lambda: "One." in str(at.fake.of(said["id"])))
        card = await at.ask()
        await at.fake.press(card, "Raise it to 2 calls a day", at.ana)
        assert "Raised for good by @ana" in await at.decided(card)
        await at.fake.until(lambda: "Two." in str(at.fake.of(at.thread)))
