"""Change on the card of a schedule, on each platform: a form or a reply, then a new card."""

from __future__ import annotations

import json
from pathlib import Path

from tests.fakes import discord_rules
from tests.fakes.house import House
from tests.fakes.llm_rules import Reply
from tests.fakes.telegram import Sent
from tests.scenario.test_discord import labels, on_discord
from tests.scenario.test_slack import direct, everything, on_slack, started
from tests.scenario.test_telegram import ANA, on_telegram

SAID = "every day at 8, retry 1: Brief us."
CHANGED = "every day at 9, queue, quiet 22:00-07:00"


async def _made(house: House) -> str:
    """Return the one schedule that there is, as the shell shows it."""
    (line,) = (await house.run("schedule", "list")).splitlines()
    return await house.run("schedule", "show", line.split()[0])


def _as_changed(shown: str) -> None:
    assert "When: At 09:00, every day" in shown
    assert "Due while a run is at work: waits until that run has ended" in shown
    assert "After an error: not tried again" in shown
    assert "Quiet hours: 22:00-07:00" in shown
    assert "What to do: Brief us." in shown


async def test_on_slack_a_form_changes_what_the_card_shows(tmp_path: Path) -> None:
    async with on_slack(tmp_path) as (house, slack, _):
        await started(house, slack)
        await slack.direct_say(await house.pairing_code())
        await slack.until(lambda: slack.whispers)
        zone = await slack.command("settings zone UTC", channel="DM")
        assert "are read in UTC" in str(zone.payload)
        await slack.command(f"schedule {SAID}", channel="DM")
        await slack.until(lambda: any(each.buttons() for each in direct(slack)))
        card = next(each for each in direct(slack) if each.buttons())
        await slack.press("Change", card)
        await slack.until(lambda: slack.views)
        (view,) = slack.views.values()
        fields = {b["block_id"]: b for b in view["blocks"] if b["type"] == "input"}
        assert fields["when"]["element"]["initial_value"] == "every day at 8, retry 1"
        wrong = await slack.submit({"when": "every day at 9, retry often"})
        assert wrong.payload is not None and wrong.payload["response_action"] == "errors"
        assert "'retry often'" in wrong.payload["errors"]["when"], "said in the form, which stays"
        await slack.submit({"when": CHANGED})
        await slack.until(lambda: not card.buttons())
        await slack.until(lambda: any(each.buttons() for each in direct(slack)))
        again = next(each for each in direct(slack) if each.buttons())
        assert "waits until that run has ended" in everything(again)
        await slack.press("Confirm", again)
        await slack.until(lambda: not again.buttons())
        _as_changed(await _made(house))


async def test_on_discord_a_form_changes_what_the_card_shows(tmp_path: Path) -> None:
    async with on_discord(tmp_path) as (house, fake, _):
        ana = fake.user("ana")
        private = fake.direct(ana)
        await house.start()
        await fake.say(private, ana, await house.pairing_code())
        await fake.until(lambda: fake.shown(private))
        await fake.until(lambda: fake.commands)
        zone = await fake.command(private, ana, "settings", "zone UTC")
        await fake.until(lambda: zone.told)
        await fake.command(private, ana, "schedule", SAID)

        def open_cards() -> list[discord_rules.Json]:
            return [each for each in fake.of(private) if "Change" in labels(each)]

        await fake.until(open_cards)
        card = open_cards()[0]
        opened = await fake.press(card, "Change", ana)
        await fake.until(lambda: opened.answers)
        inside = [part["component"] for part in opened.answers[0][1]["components"][:5]]
        values = {each["custom_id"]: each.get("value", "") for each in inside if each["type"] == 4}
        assert values["when"] == "every day at 8, retry 1"
        await fake.submit(opened, {"when": CHANGED}, ana)
        await fake.until(lambda: "Change" not in labels(card) and open_cards())
        again = open_cards()[0]
        assert "waits until that run has ended" in discord_rules.text_of(again)
        await fake.press(again, "Confirm", ana)
        await fake.until(lambda: not labels(again))
        _as_changed(await _made(house))


async def test_on_telegram_a_reply_changes_what_the_card_shows(tmp_path: Path) -> None:
    async with on_telegram(tmp_path) as (house, telegram, _):
        await house.start()
        await telegram.say(ANA, ANA, await house.pairing_code())
        await telegram.until(lambda: telegram.of(ANA))
        await telegram.say(ANA, ANA, "/settings zone UTC")
        await telegram.say(ANA, ANA, f"/schedule {SAID}")

        def open_card() -> Sent | None:
            return next((each for each in telegram.of(ANA) if each.buttons), None)

        await telegram.until(open_card)
        card = open_card()
        assert card is not None
        await telegram.press(card, next(each for each in card.labels if "Change" in each), ANA)

        def form() -> Sent | None:
            found = (each for each in telegram.of(ANA) if each.text.startswith("Other arguments"))
            return next(found, None)

        await telegram.until(form)
        asked = form()
        assert asked is not None
        assert "every day at 8, retry 1" in asked.text
        await telegram.say(ANA, ANA, json.dumps({"when": CHANGED}), reply_to=asked.id)
        await telegram.until(lambda: not card.buttons and open_card())
        again = open_card()
        assert again is not None and "waits until that run has ended" in again.text
        await telegram.press(again, next(each for each in again.labels if "Confirm" in each), ANA)
        await telegram.until(lambda: not again.buttons)
        _as_changed(await _made(house))


async def test_ask_nod_turns_words_that_are_not_clear_into_a_card_of_the_model(
    tmp_path: Path,
) -> None:
    async with on_telegram(tmp_path) as (house, telegram, model):
        proposed = {"when": CHANGED, "instructions": "Brief us."}
        model.replies = [
            Reply(calls=(("propose_schedule", json.dumps(proposed)),)),
            Reply(text="Please confirm the card."),
        ]
        await house.start()
        await telegram.say(ANA, ANA, await house.pairing_code())
        await telegram.until(lambda: telegram.of(ANA))
        await telegram.say(ANA, ANA, "/schedule each morning after the standup: Brief us.")

        def card(label: str) -> Sent | None:
            found = (e for e in telegram.of(ANA) if any(label in each for each in e.labels))
            return next(found, None)

        await telegram.until(lambda: card("Ask Nod"))
        offered = card("Ask Nod")
        assert offered is not None and "not surely understand" in offered.text
        assert model.seen == [], "nobody guesses"
        await telegram.press(offered, next(e for e in offered.labels if "Ask Nod" in e), ANA)
        await telegram.until(lambda: card("Confirm"), 30)
        confirm = card("Confirm")
        assert confirm is not None and "At 09:00, every day" in confirm.text
        await telegram.until(lambda: "Nod was asked by" in offered.text)
        await telegram.press(confirm, next(e for e in confirm.labels if "Confirm" in e), ANA)
        await telegram.until(lambda: not confirm.buttons)
        _as_changed(await _made(house))
