"""Answers Discord's interactions: presses, forms, commands and what is offered while typing.

Discord waits three seconds for a first answer and calls the interaction failed after that. What was
pressed is stored first; when that takes longer than usual, the answer is put off and follows.
"""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import discord

from bot.forms import FieldError
from bot.render.discord import render
from bot.surfaces import discord_cards, discord_commands
from bot.surfaces.base import Commanded, Inbound, Pressed, Receipt, SurfaceError
from bot.surfaces.config import Ground
from bot.surfaces.discord_cards import FILLED, FORM
from bot.surfaces.discord_places import Place, Spot
from bot.surfaces.discord_posts import Posts
from bot.surfaces.discord_reading import author_of, place_of
from bot.surfaces.discord_rest import QUIET, Rest, RestError
from engine.canonical import clean
from engine.errors import NodError

__all__ = ["Pressing"]

#: Seconds the first answer may wait for the store; Discord waits three.
PATIENCE = 1.5

_FIRST = "/interactions/{interaction_id}/{webhook_token}/callback"
_MORE = "/webhooks/{webhook_id}/{webhook_token}"

#: Kinds of a first answer.
#: https://discord.com/developers/docs/interactions/receiving-and-responding
_MESSAGE, _LATER_MESSAGE, _LATER_UPDATE, _CHOICES, _MODAL = 4, 5, 6, 8, 9
#: Message flags: for this person only, no previews of links.
_PRIVATE = 1 << 6 | 1 << 2
#: Error codes: the interaction is over; it was answered already.
_OVER, _ANSWERED = 10062, 40060
#: Messages of one private answer; a longer one is a file.
_MOST = 5

_UNKNOWN = "This button is not one I know any more. See `/inbox` for what waits."
_LOST = "That could not be stored, so it did not count. Try again in a moment."
_SLOW = "That took too long. Try again in a moment."

Take = Callable[[Inbound], Awaitable[Receipt | None]]

_log = logging.getLogger(__name__)


class Pressing:
    """Takes interactions, and answers each."""

    def __init__(
        self, rest: Rest, posts: Posts, ground: Ground, take: Take, patience: float
    ) -> None:
        """`take` returns None when an event could not be stored; `patience` is in seconds."""
        self._rest = rest
        self._posts = posts
        self._forms = ground.forms
        self._board = ground.board
        self._now = ground.now
        self._counts = ground.counts
        self._take = take
        self._patience = patience

    async def handle(self, interaction: discord.Interaction[Any]) -> None:
        """Take one interaction and answer it. Raises SurfaceError when Discord refused that."""
        answer = _Answer(interaction, self._rest, self._posts)
        kinds = discord.InteractionType
        if interaction.type is kinds.application_command:
            await self._command(interaction, answer)
        elif interaction.type is kinds.autocomplete:
            await self._offer(interaction, answer)
        elif interaction.type in (kinds.component, kinds.modal_submit):
            await self._component(interaction, answer)

    async def _command(self, interaction: discord.Interaction[Any], answer: _Answer) -> None:
        data, place = _data(interaction), _place(interaction)
        event = Commanded(
            event=f"interaction/{interaction.id}",
            target=str(place),
            person=author_of(interaction.user),
            name=str(data["name"]),
            arguments=discord_commands.arguments_of(data, partial(_channel, interaction)),
            direct=place.is_direct,
            beside=not (place.is_direct or place.thread),
        )
        await self._taken(event, answer, _LATER_MESSAGE)

    async def _offer(self, interaction: discord.Interaction[Any], answer: _Answer) -> None:
        data, person = _data(interaction), str(interaction.user.id)
        page = await self._board.page("discord", person, str(_place(interaction)))
        option, typed = discord_commands.focused(data)
        said = (str(data["name"]), option, typed, page, self._now())
        # In a thread: what reads times is imported with the first, and zones are files.
        found = await asyncio.to_thread(discord_commands.offers, *said)
        await answer.first(_CHOICES, {"choices": found})

    async def _component(self, interaction: discord.Interaction[Any], answer: _Answer) -> None:
        data = _data(interaction)
        act, token = discord_cards.act_of(str(data.get("custom_id", "")))
        if not act:
            self._counts.add("nod_refused_total", surface="discord", reason="unknown button")
            await answer.tell(_UNKNOWN)
            return
        try:
            if act == FORM:
                await self._open(interaction, answer, token)
            else:
                filled = data.get("components", ()) if act == FILLED else None
                event = await self._press(interaction, token, filled)
                await self._taken(event, answer, _LATER_UPDATE)
        except SurfaceError:
            raise
        except FieldError as error:
            await answer.tell(f"{error} Nothing was decided: press the button again.")
        except NodError as error:
            await answer.tell(str(error))

    async def _open(
        self, interaction: discord.Interaction[Any], answer: _Answer, token: str
    ) -> None:
        try:
            async with asyncio.timeout(self._patience):
                form = await self._forms.open("discord", str(interaction.user.id), token)
        except TimeoutError:
            await answer.tell(_SLOW)
            return
        await answer.first(_MODAL, discord_cards.modal(form, token))

    async def _press(
        self, interaction: discord.Interaction[Any], token: str, filled: Any
    ) -> Pressed:
        person, place = author_of(interaction.user), _place(interaction)
        given: dict[str, Any] = {}
        if filled is not None:
            said = discord_cards.values(filled)
            form = await self._forms.read("discord", person.id, token, said)
            given = {"text": form.text, "arguments": form.arguments}
        ref = ""
        if interaction.message is not None:
            ref = str(Spot(channel=place.posts_in, message=str(interaction.message.id)))
        return Pressed(
            event=f"interaction/{interaction.id}",
            target=str(place),
            person=person,
            token=token,
            ref=ref,
            **given,
        )

    async def _taken(self, event: Inbound, answer: _Answer, later: int) -> None:
        """Take the event, and answer in time whatever it takes."""
        taking = asyncio.ensure_future(self._take(event))
        try:
            if not (await asyncio.wait([taking], timeout=self._patience))[0]:
                await answer.later(later)
        finally:
            receipt = await taking  # whatever became of the answer, it counts
        if receipt is None:
            await answer.tell(_LOST)
        elif receipt.text or later == _LATER_MESSAGE:
            await answer.tell(receipt.text or "Done.")
        else:
            await answer.later(later)


def _data(interaction: discord.Interaction[Any]) -> Mapping[str, Any]:
    data: Any = interaction.data or {}
    return data  # type: ignore[no-any-return]


def _channel(interaction: discord.Interaction[Any], id: str) -> str:
    """Return the target of a channel that was picked."""
    guild = getattr(interaction.client.get_channel(int(id)), "guild", None)
    return str(Place(guild=str(guild.id), channel=id)) if guild else f"<#{id}>"


def _place(interaction: discord.Interaction[Any]) -> Place:
    return place_of(interaction.channel, interaction.guild_id)


class _Answer:
    """The answer to one interaction: to this person only, in as many steps as it takes."""

    def __init__(self, interaction: discord.Interaction[Any], rest: Rest, posts: Posts) -> None:
        self._id = str(interaction.id)
        self._ids = {
            "interaction_id": self._id,
            "webhook_id": str(interaction.application_id),
            "webhook_token": interaction.token,
        }
        self._user = str(interaction.user.id)
        self._rest = rest
        self._posts = posts
        #: Nothing was answered yet; later: a message follows; open: more can be said.
        self._state = "new"

    async def first(self, kind: int, data: Mapping[str, Any] | None = None) -> None:
        """Give the first answer. One that comes too late is no error: the press counts."""
        body = {"type": kind, **({"data": data} if data else {})}
        try:
            await self._rest.call("POST", _FIRST, self._ids, body=body)
        except RestError as error:
            if error.code not in (_OVER, _ANSWERED):
                raise
            _log.info("an interaction was over before it was answered (%d)", error.code)
            self._state = "over" if error.code == _OVER else "open"
        else:
            self._state = "later" if kind == _LATER_MESSAGE else "open"

    async def later(self, kind: int) -> None:
        """Say that it was heard; what is to be said follows."""
        if self._state == "new":
            data = {"flags": _PRIVATE} if kind == _LATER_MESSAGE else None
            await self.first(kind, data)

    async def tell(self, text: str) -> None:
        """Say something to this person only; where the interaction is over, in their DM."""
        pieces = render(clean(text)) or ["…"]
        if self._state == "new":
            await self.first(_MESSAGE, _message(pieces[0]))
            if self._state == "open" and len(pieces) <= _MOST:
                pieces = pieces[1:]
        if self._state == "over":
            await self._posts.tell(self._user, text, f"interaction/{self._id}")
            return
        if len(pieces) > _MOST:
            await self._whole(text)
            return
        for piece in pieces:
            await self._more(_message(piece))

    async def _more(self, body: Mapping[str, Any]) -> None:
        if self._state == "later":  # this message takes the place of the one that was put off
            await self._rest.call("PATCH", f"{_MORE}/messages/@original", self._ids, body=body)
            self._state = "open"
        else:
            await self._rest.call("POST", _MORE, self._ids, body=body)

    async def _whole(self, text: str) -> None:
        """Send a text that is too long for messages, as a file."""
        if self._state == "later":
            await self._more(_message("It is long, so it comes as a file."))
        file = discord.File(io.BytesIO(clean(text).encode()), "answer.md")
        body = {**_message(""), "attachments": [{"id": 0, "filename": file.filename}]}
        await self._rest.call("POST", _MORE, self._ids, body=body, files=[file])


def _message(piece: str) -> dict[str, Any]:
    return {"content": piece, "flags": _PRIVATE, "allowed_mentions": QUIET}
