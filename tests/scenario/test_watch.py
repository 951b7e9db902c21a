"""A watch on Slack from end to end: asked for in a DM, silent, then telling what an alert meant."""

from __future__ import annotations

from pathlib import Path

from bot import pairing, settings
from bot.app import App
from engine.clock import system_now
from engine.schedule import subscriptions
from tests.fakes.jobs import until
from tests.fakes.llm import FakeLLM
from tests.fakes.llm_rules import Reply
from tests.fakes.slack import APP_TOKEN, FakeSlack
from tests.fakes.slack_state import Post

ASKED = "watch <#CGEN|general> with checkout: open a ticket when the checkout fails"


def direct(slack: FakeSlack) -> list[Post]:
    return slack.direct("T1", "UANA").of_nod


async def test_an_alert_of_an_app_is_told_only_when_it_concerns_the_watch(tmp_path: Path) -> None:
    clock = [system_now()]
    async with FakeSlack() as slack, FakeLLM() as model:
        model.replies = [Reply(text="NO_REPLY"), Reply(text="The checkout fails since 07:02.")]
        environ = {
            "NOD_HOME": str(tmp_path / "data"),
            "NOD_MODEL": "openai:gpt-5",
            "NOD_SLACK_BASE_URL": slack.base_url,
            "SLACK_BOT_TOKEN": slack.teams["T1"].token,
            "SLACK_APP_TOKEN": APP_TOKEN,
            **model.environ(),
        }
        async with App(settings.load(environ), environ, now=lambda: clock[0]) as nod:
            await slack.connected(1)
            code = await nod.store.write(lambda tx: pairing.offer(tx, "local", clock[0]))
            await slack.direct_say(code.split()[-1])
            await slack.until(lambda: slack.whispers)

            told = await slack.command(ASKED, channel="DM")
            assert "Nothing is watched before" in str(told.payload)
            await slack.until(lambda: any(each.buttons() for each in direct(slack)))
            [card] = [each for each in direct(slack) if each.buttons()]
            await alert(slack, "checkout down")  # before the yes: nobody hears it
            assert (await slack.press("Approve", card)).ok
            await slack.until(lambda: not card.buttons())
            before = len(direct(slack))

            async def gathered(asked: int) -> str:
                clock[0] += 61
                nod.alarm.nudge()
                await until(lambda: len(model.seen) == asked)
                [watch] = await nod.store.read(lambda tx: subscriptions.listed(tx, "local"))
                return watch.session

            for text in ("the build is red", "checkout: all good"):
                await alert(slack, text)
            session = await gathered(1)
            await nod.dispatcher.settled()
            rows = await nod.store.read(lambda tx: tx.all("log_since", session=session, seq=1))
            await nod.presenter.caught_up(session, rows[-1]["seq"])
            assert len(direct(slack)) == before and "NO_REPLY" not in str(direct(slack))

            await alert(slack, "checkout: 5xx over 2 %")
            await gathered(2)
            await slack.until(lambda: len(direct(slack)) > before)
            assert "The checkout fails since 07:02." in direct(slack)[-1].text
            heard = [str(each.body) for each in model.seen]
            assert "all good" in heard[0] and "the build is red" not in "".join(heard)
            assert "checkout down" not in "".join(heard)


async def alert(slack: FakeSlack, text: str) -> None:
    """Write as an app does, which has no user."""
    await slack.say(text, subtype="bot_message", bot_id="BALERTS", username="Alerts")
