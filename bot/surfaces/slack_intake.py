"""Reads what Slack sends: one payload in, one inbound event out, or none. Does no I/O.

Which posts count, and whose they are, is decided here; a payload that lacks what it must have
raises KeyError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bot.surfaces import slack_words
from bot.surfaces.base import Attachment, Author, Commanded, Edited, Pressed, Said
from bot.surfaces.slack_places import Spot, target_of

__all__ = ["Reader", "Speaker", "command_of", "installations", "is_direct", "press_of"]

#: Kinds of posts that people write; all others with a subtype are the platform's own notes.
#: https://docs.slack.dev/reference/events/message
HUMAN = frozenset({"", "file_share", "me_message", "thread_broadcast"})
#: What apps without a user of their own write, such as alerts.
MACHINE = "bot_message"


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """Nod's own identity in one workspace, or in all of an organization."""

    #: The team's id; of an installation for a whole organization, the organization's.
    team: str
    #: The bot's user id, and its id as a bot.
    user: str
    bot: str


def installations(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the ids of installations a payload may have been sent to, the surest first.

    In a channel that workspaces share, the authorization tells it, and no other field does.
    https://docs.slack.dev/enterprise/developing-for-enterprise-orgs
    """
    given = (body.get("authorizations") or [body])[0]
    teams = [(body.get("view") or {}).get("app_installed_team_id"), given.get("team_id")]
    teams += [body.get("team"), body.get("team_id")]
    user = body.get("user")
    teams += [user.get("team_id")] if isinstance(user, Mapping) else []
    whole = [given.get("enterprise_id"), body.get("enterprise"), body.get("enterprise_id")]
    for_all = given.get("is_enterprise_install") in (True, "true")
    found = map(_id, [*whole, *teams] if for_all else [*teams, *whole])
    return tuple(dict.fromkeys(each for each in found if each))


def _id(value: Any) -> str:
    return str((value.get("id") if isinstance(value, Mapping) else value) or "")


def is_direct(event: Mapping[str, Any]) -> bool:
    """Say whether the post stands in a DM of one person and the bot."""
    return event.get("channel_type") == "im" or str(event.get("channel", "")).startswith("D")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Reads the posts of one workspace."""

    speaker: Speaker
    #: user id -> name, of those who are known.
    names: Mapping[str, str]
    #: Makes the attachment of a file object.
    attach: Callable[[Mapping[str, Any]], Attachment]

    def post(self, event: Mapping[str, Any]) -> Said | Edited | Commanded | None:
        """Read a `message` or `app_mention` event; None: it is nobody's line.

        Slack takes no slash commands in threads, so there one may be said to Nod: @Nod /status.
        """
        if event.get("subtype") == "message_changed":
            return self._edit(event)
        kind = event.get("subtype", "")
        if kind not in HUMAN | {MACHINE} or self._own(event):
            return None
        if kind == MACHINE:
            return self._machine(event)
        if "user" not in event:
            return None
        direct, bot = is_direct(event), "bot_id" in event
        mentioned = event.get("type") == "app_mention" or slack_words.mentions(
            str(event.get("text") or ""), self.speaker.user
        )
        if bot and not mentioned:
            return self._machine(event)
        text = slack_words.said(event, self.speaker.user, self.names)
        marked = slack_words.said(event, self.speaker.user, self.names, marks=True)
        if (mentioned or direct) and not bot and (typed := slack_words.command(marked)):
            return Commanded(
                event=self._key(event["channel"], event["ts"]),
                target=self._target(event),
                person=self._author(event["user"]),
                name=typed[0],
                arguments=typed[1],
                direct=direct,
            )
        return Said(
            event=self._key(event["channel"], event["ts"]),
            target=self._target(event),
            person=self._author(event["user"]),
            text=text,
            files=tuple(map(self.attach, event.get("files") or ())),
            reply_to=self._reply_to(event),
            addressed=mentioned or direct,
            direct=direct,
            bot=bot,
            places=slack_words.places(event, self.speaker.team),
        )

    def _machine(self, event: Mapping[str, Any]) -> Said | None:
        """Read what an app writes to nobody: only a watch hears it."""
        if is_direct(event):
            return None
        who = str(event.get("user") or event.get("bot_id") or "")
        name = str(event.get("username") or self.names.get(who) or who or "an app")
        return Said(
            event=self._key(event["channel"], event["ts"]),
            target=self._target(event),
            person=Author(id=f"{self.speaker.team}/{who}", name=name),
            text="\n\n".join(
                part
                for part in (
                    slack_words.said(event, self.speaker.user, self.names),
                    *slack_words.attached(event, self.names),
                )
                if part
            ),
            addressed=False,
            bot=True,
            overheard=True,
        )

    def _edit(self, event: Mapping[str, Any]) -> Edited | None:
        """Read a changed post; a link preview, or a machine's edit, changes nothing."""
        now, before = event["message"], event.get("previous_message") or {}
        if now.get("subtype", "") not in HUMAN or "bot_id" in now or "user" not in now:
            return None
        if "edited" not in now or now.get("text") == before.get("text"):
            return None
        post = {**now, "channel": event["channel"], "channel_type": event.get("channel_type", "")}
        key = self._key(event["channel"], now["ts"])
        return Edited(
            event=f"{key}/{now['edited']['ts']}",
            target=self._target(post),
            person=self._author(now["user"]),
            original=key,
            text=slack_words.said(now, self.speaker.user, self.names),
        )

    def _own(self, event: Mapping[str, Any]) -> bool:
        return event.get("user") == self.speaker.user or event.get("bot_id") == self.speaker.bot

    def _target(self, event: Mapping[str, Any]) -> str:
        """A post in a channel begins a thread, or stands in one; in a DM it may stand free."""
        thread = "" if event.get("thread_ts") == event["ts"] else event.get("thread_ts", "")
        thread = thread or ("" if is_direct(event) else event["ts"])
        return target_of(self.speaker.team, event["channel"], event.get("user", ""), thread)

    def _reply_to(self, event: Mapping[str, Any]) -> str:
        """A line in the thread below a message of Nod replies to that message."""
        if event.get("parent_user_id") != self.speaker.user:
            return ""
        team = self.speaker.team
        return str(Spot(team=team, channel=event["channel"], ts=event["thread_ts"]))

    def _key(self, channel: str, ts: str) -> str:
        return f"{self.speaker.team}/{channel}/{ts}"

    def _author(self, user: str) -> Author:
        return Author(id=f"{self.speaker.team}/{user}", name=self.names.get(user, user))


def press_of(team: str, body: Mapping[str, Any]) -> Pressed:
    """Read a `block_actions` payload of one of our buttons."""
    action, user = body["actions"][0], body["user"]
    container = body["container"]
    channel, ts = container.get("channel_id", ""), container.get("message_ts", "")
    thread = container.get("thread_ts") or body.get("message", {}).get("thread_ts", "")
    thread = "" if thread == ts and channel.startswith("D") else thread
    spot = Spot(team=team, channel=channel, ts=ts, thread=thread)
    place = channel or user["id"]
    return Pressed(
        event=f"{team}/{place}/{action['action_ts']}/{user['id']}/{action['block_id']}",
        target=target_of(team, place, user["id"], thread),
        person=Author(id=f"{team}/{user['id']}", name=_name(user)),
        token=str(action["value"]),
        ref=str(spot) if ts else "",
    )


def command_of(team: str, body: Mapping[str, Any], names: Mapping[str, str]) -> Commanded:
    """Read a slash command: `/nod status` is the command `status`, `/nod` alone is `help`.

    Slack sends people and channels as marks (should_escape), which say exactly who is meant.
    """
    text = slack_words.words(str(body.get("text") or ""), names, marks=True)
    name, _, arguments = text.strip().partition(" ")
    channel, user = body["channel_id"], body["user_id"]
    return Commanded(
        event=f"{team}/{body['trigger_id']}",
        target=target_of(team, channel, user),
        person=Author(id=f"{team}/{user}", name=str(body.get("user_name") or user)),
        name=name.removeprefix("/") or "help",
        arguments=arguments.strip(),
        direct=channel.startswith("D"),
        beside=not channel.startswith("D"),
    )


def _name(user: Mapping[str, Any]) -> str:
    return str(user.get("name") or user.get("username") or user["id"])
