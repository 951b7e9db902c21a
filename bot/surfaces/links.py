"""Says where a thread can be opened: the address of a thread_target on its platform. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import quote

from engine.targets import ThreadTarget

__all__ = ["link"]

#: How the chats begin that have addresses; the rest of the number is in the address.
_SUPERGROUP = "-100"


def link(target: str) -> str:
    """Return the address that opens the thread, or the target itself where there is none.

    No platform is asked: what the address needs is in the target. Only members can open it.
    """
    place = ThreadTarget.parse(target)
    made = _LINKS.get(place.surface)
    return (made(*(quote(part, safe="@") for part in place.path)) if made else "") or target


def _slack(team: str, channel: str = "", thread: str = "", *_: str) -> str:
    """https://api.slack.com/reference/deep-linking, and what its web client shows."""
    if not channel:
        return ""
    if not thread:
        return f"https://slack.com/app_redirect?team={team}&channel={channel}"
    return f"https://app.slack.com/client/{team}/{channel}/thread/{channel}-{thread}"


def _telegram(bot: str, chat: str = "", post: str = "", *_: str) -> str:
    """https://core.telegram.org/api/links#message-links: private chats and groups have none."""
    if not (chat.startswith(_SUPERGROUP) and post):
        return ""
    return f"https://t.me/c/{chat.removeprefix(_SUPERGROUP)}/{post}"


def _discord(server: str, *places: str) -> str:
    """A thread is a channel; a direct message stands under @me."""
    return f"https://discord.com/channels/{server}/{places[-1]}" if places else ""


_LINKS: Mapping[str, Callable[..., str]] = {
    "slack": _slack,
    "telegram": _telegram,
    "discord": _discord,
}
