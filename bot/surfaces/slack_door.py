"""Takes what Slack sends, before Slack is told that it was taken: the global middleware of Bolt.

What must not be lost is durable when `take` returns; what `take` raises is not acknowledged, so
Slack sends it again. What only has to be shown is done afterwards, by tasks the surface owns.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from aiohttp import ClientError, ClientSession
from slack_bolt.response import BoltResponse

from bot.forms import FieldError
from bot.render.slack import mrkdwn, render, texts
from bot.surfaces import slack_blocks
from bot.surfaces.base import Commanded, Inbound, Pressed, Receipt, Said, SurfaceError
from bot.surfaces.config import Ground
from bot.surfaces.slack_files import attachments
from bot.surfaces.slack_intake import Reader, command_of, is_direct, press_of
from bot.surfaces.slack_places import Spot, target_of
from bot.surfaces.slack_teams import Team, Teams
from bot.surfaces.slack_words import people, typed
from engine.errors import PromptError

__all__ = ["Door"]

Take = Callable[[Inbound], Awaitable[Receipt]]

#: Seconds a command may take before Slack is told that it came; it gives three.
COMMAND = 2.0
#: People named in one command whose names are asked for before it is carried out.
PEOPLE = 2
#: What a malformed payload raises when it is read.
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError)
_FAILED = "Something went wrong with that, and the log says more. Try it again."
_FOREIGN = "This button is not one of mine. See `/inbox`."

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Door:
    """Reads payloads, hands them to the intake, and answers as Slack expects."""

    teams: Teams
    ground: Ground
    session: ClientSession
    base_url: str
    intake: Take
    #: Learns a person's DM: (team, user, channel).
    met: Callable[[str, str, str], None]
    #: Runs something after the acknowledgement; the surface owns it.
    after: Callable[[Coroutine[Any, Any, None]], None]
    #: Shows at once that a message was taken.
    sign: Callable[[Said, Receipt], Awaitable[None]]

    #: Events that are being taken, by their ids.
    _taking: dict[str, asyncio.Task[Receipt]] = field(default_factory=dict)

    async def take(self, body: Mapping[str, Any]) -> BoltResponse:
        """Take one payload and return what Slack is answered."""
        kind = "command" if "command" in body else str(body.get("type"))
        read = _KINDS.get(kind)
        if read is None:
            return _ack()
        try:
            return await read(self, body)
        except _MALFORMED as error:
            self.ground.counts.add("nod_refused_total", surface="slack", reason="malformed")
            _log.warning("a payload of Slack (%s) was not understood: %r", kind, type(error))
            return _ack()

    # -- posts

    async def _event(self, body: Mapping[str, Any]) -> BoltResponse:
        event, team = body["event"], self.teams.of(body)
        kind = event["type"]
        if kind in ("message", "app_mention"):
            where = body.get("context_team_id") or body.get("team_id")
            team.belongs(str(event.get("user") or ""), str(where or ""))  # until it is told better
            await self.post(team, event)
        elif kind == "app_home_opened" and event.get("tab") == "home":
            self.after(self.publish(team, event["user"]))
        elif kind == "assistant_thread_started":
            self.after(self._suggest(team, event["assistant_thread"]))
        elif kind == "app_uninstalled" or (kind == "tokens_revoked" and event["tokens"].get("bot")):
            self.after(self.teams.remove(team.id))
        return _ack()

    async def post(self, team: Team, event: Mapping[str, Any]) -> Receipt | None:
        """Take a post, also one that is read from a history; None: it is nobody's line."""
        user = event.get("user", "")
        if user and user != team.speaker.user:
            if is_direct(event):
                self.met(team.id, user, event["channel"])
            team.belongs(user, str(event.get("user_team") or event.get("team") or ""))
            await team.name_of(user)
        reader = Reader(
            speaker=team.speaker,
            names=team.names,
            attach=attachments(team, self.session, self.base_url),
        )
        read = reader.post(event)
        if read is None:
            return None
        if isinstance(read, Commanded):
            await self._in_thread(team, event, read)
            return None
        receipt = await self._once(read)
        if isinstance(read, Said):
            self.after(self._answered(team, event, read, receipt))
        return receipt

    async def _in_thread(self, team: Team, event: Mapping[str, Any], commanded: Commanded) -> None:
        """Carry out a command that was said; its answer is seen by its author alone."""
        commanded = await _zoned(team, commanded)
        working = asyncio.ensure_future(self._once(commanded))

        async def tell() -> None:
            text = await _told(commanded, working)
            await self._whisper(team, event, commanded.target, text)

        done, _ = await asyncio.wait({working}, timeout=COMMAND)
        for each in done:
            each.result()  # what failed is not acknowledged: Slack sends it again
        self.after(tell())

    async def _once(self, event: Inbound) -> Receipt:
        """Hand over an event; a copy that comes meanwhile waits for the first one."""
        taking = self._taking.get(event.event)
        if taking is None:
            taking = asyncio.ensure_future(self.intake(event))
            self._taking[event.event] = taking
            taking.add_done_callback(lambda _: self._taking.pop(event.event, None))
            return await taking
        receipt = await asyncio.shield(taking)
        return Receipt(status="duplicate", session=receipt.session)

    async def _answered(
        self, team: Team, event: Mapping[str, Any], said: Said, receipt: Receipt
    ) -> None:
        """Show what became of a post: a sign, or a word to its author alone."""
        if receipt.status in ("duplicate", "ignored"):
            return
        await self._whisper(team, event, said.target, typed(receipt.text))
        if receipt.status == "accepted":
            await self.sign(said, receipt)

    async def _whisper(self, team: Team, event: Mapping[str, Any], target: str, text: str) -> None:
        """Say something to the author of a post, and to nobody else."""
        thread = target.split("/")[2:]
        where = {"thread_ts": thread[0]} if thread else {}
        for each in texts(text) if text else ():
            await team.call(
                "chat_postEphemeral",
                channel=event["channel"],
                user=event["user"],
                text=each,
                **where,
            )

    async def _suggest(self, team: Team, thread: Mapping[str, Any]) -> None:
        prompts = [{"title": each, "message": each} for each in _SUGGESTED]
        await team.call(
            "assistant_threads_setSuggestedPrompts",
            channel_id=thread["channel_id"],
            thread_ts=thread["thread_ts"],
            prompts=prompts,
        )

    # -- presses and forms

    async def _action(self, body: Mapping[str, Any]) -> BoltResponse:
        team, action = self.teams.of(body), body["actions"][0]
        does = str(action.get("action_id", ""))
        if not does.startswith(slack_blocks.OURS) or action.get("type") != "button":
            self.ground.counts.add("nod_refused_total", surface="slack", reason="button")
            self.after(self._tell(team, body, _FOREIGN))
            return _ack()
        pressed = press_of(team.id, body)
        if does.startswith(slack_blocks.ASK):
            self.after(self._open(team, body, pressed))
            return _ack()
        receipt = await self._once(pressed)
        if receipt.text:
            as_page = does.startswith(slack_blocks.LOOK)
            self.after(self._tell(team, body, receipt.text, as_page=as_page))
        self._refresh(team, body, pressed)
        return _ack()

    def _refresh(self, team: Team, body: Mapping[str, Any], pressed: Pressed) -> None:
        """A press in the Home changes it."""
        if not pressed.ref:
            self.after(self.publish(team, body["user"]["id"]))

    async def _open(self, team: Team, body: Mapping[str, Any], pressed: Pressed) -> None:
        """Open the form a button asks for."""
        try:
            form = await self.ground.forms.open("slack", pressed.person.id, pressed.token)
        except PromptError as error:
            await self._tell(team, body, str(error))
            return
        kept = {"token": pressed.token, "ref": pressed.ref, "target": pressed.target}
        view = slack_blocks.form(form, json.dumps(kept))
        await team.call("views_open", trigger_id=body["trigger_id"], view=view)

    async def _submitted(self, body: Mapping[str, Any]) -> BoltResponse:
        team, view = self.teams.of(body), body["view"]
        if view["callback_id"] != slack_blocks.FORM:
            return _ack()
        kept, user = json.loads(view["private_metadata"]), body["user"]
        values = slack_blocks.values(view)
        pressed = press_of(team.id, _as_press(body, kept, user))
        forms = self.ground.forms
        try:
            filled = await forms.read("slack", pressed.person.id, kept["token"], values)
        except PromptError as error:
            name = error.name if isinstance(error, FieldError) else next(iter(values), "")
            return _wrong(name, str(error))
        receipt = await self._once(
            Pressed(
                event=f"{team.id}/{view['id']}/{view['hash']}",
                target=kept["target"],
                person=pressed.person,
                token=kept["token"],
                ref=kept["ref"],
                text=filled.text,
                arguments=filled.arguments,
            )
        )
        self._refresh(team, body, pressed)
        if receipt.status == "refused":
            return _wrong(next(iter(values), ""), receipt.text)
        if receipt.text:
            shown = slack_blocks.page("Nod", typed(receipt.text))
            return _answer({"response_action": "update", "view": shown})
        return _ack()

    async def publish(self, team: Team, user: str) -> None:
        """Show somebody their Home."""
        place = target_of(team.id, user, user)
        page = await self.ground.board.page("slack", f"{team.id}/{user}", place)
        await team.call("views_publish", user_id=user, view=slack_blocks.board(page))

    async def _tell(
        self, team: Team, body: Mapping[str, Any], text: str, *, as_page: bool = False
    ) -> None:
        """Tell the one who pressed, and nobody else; in the Home there is only a page for that."""
        if body.get("response_url") and not as_page:
            await self._respond(body["response_url"], {"text": mrkdwn(typed(text))})
        else:
            view = slack_blocks.page("Nod", text if as_page else typed(text))
            await team.call("views_open", trigger_id=body["trigger_id"], view=view)

    async def _respond(self, url: str, shown: Mapping[str, Any]) -> None:
        answer = {"response_type": "ephemeral", "replace_original": False, **shown}
        try:
            async with self.session.post(url, json=answer) as response:
                if response.status != 200:
                    raise SurfaceError(f"Slack took no answer (HTTP {response.status}).")
        except (ClientError, TimeoutError) as error:
            raise SurfaceError("Slack took no answer.", certain=False) from error

    # -- commands

    async def _command(self, body: Mapping[str, Any]) -> BoltResponse:
        team = self.teams.of(body)
        for each in people(str(body.get("text") or ""))[:PEOPLE]:
            await team.name_of(each, 0.5)
        commanded = await _zoned(team, command_of(team.id, body, team.names))
        working = asyncio.ensure_future(self._once(commanded))
        done, _ = await asyncio.wait({working}, timeout=COMMAND)
        if not done:
            self.after(self._late(working, commanded, body["response_url"]))
            return _ack()
        first, *rest = _shown(await _told(commanded, working))
        if rest:
            self.after(self._rest(body["response_url"], rest))
        return _answer({"response_type": "ephemeral", **first}) if first else _ack()

    async def _late(self, working: asyncio.Future[Receipt], commanded: Commanded, url: str) -> None:
        await self._rest(url, _shown(await _told(commanded, working)))

    async def _rest(self, url: str, shown: list[dict[str, Any]]) -> None:
        for each in shown[:5]:  # a response_url takes five answers
            if each:
                await self._respond(url, each)


_KINDS: Mapping[str, Callable[[Door, Mapping[str, Any]], Awaitable[BoltResponse]]] = {
    "event_callback": Door._event,
    "block_actions": Door._action,
    "view_submission": Door._submitted,
    "command": Door._command,
}

_SUGGESTED = ("What waits for my nod?", "What is on my calendar today?", "What can you do?")


def _as_press(
    body: Mapping[str, Any], kept: Mapping[str, str], user: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the press that the form of a button stands for."""
    spot = Spot.parse(kept["ref"]) if kept["ref"] else None
    container = {"channel_id": spot.channel, "message_ts": spot.ts} if spot else {}
    action = {"action_ts": body["view"]["hash"], "block_id": "", "value": kept["token"]}
    return {"actions": [action], "user": user, "container": container}


async def _zoned(team: Team, commanded: Commanded) -> Commanded:
    """Add the time zone of the person's profile to a command that reads times."""
    if commanded.name != "schedule":
        return commanded
    user = commanded.person.id.rpartition("/")[2]
    await team.name_of(user, 0.5)
    person = replace(commanded.person, zone=team.zones.get(user, ""))
    return replace(commanded, person=person)


async def _told(commanded: Commanded, working: Awaitable[Receipt]) -> str:
    """Return what a command says; all that a card holds is shown exactly as it is."""
    try:
        text = (await working).text
    except Exception:  # noqa: BLE001  # broad: it is logged, and a command is not sent again
        return _FAILED
    return text if commanded.name == "inbox" and commanded.arguments else typed(text)


def _shown(text: str) -> list[dict[str, Any]]:
    """Return a command's answer as messages; one that is empty: nothing is said."""
    parts: list[dict[str, Any]] = [
        {"text": each.fallback, "blocks": list(each.blocks)} for each in render(text)
    ]
    return parts or [{}]


def _ack() -> BoltResponse:
    return BoltResponse(status=200, body="")


def _answer(body: dict[str, Any]) -> BoltResponse:
    return BoltResponse(status=200, body=body)


def _wrong(name: str, text: str) -> BoltResponse:
    """Say in a form what is wrong with it; a form without fields shows it as a page."""
    text = typed(text)
    if not name:
        return _answer({"response_action": "update", "view": slack_blocks.page("Nod", text)})
    return _answer({"response_action": "errors", "errors": {name: text[:150]}})
