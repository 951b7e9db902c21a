"""Says what a failed call to Slack means: whether it was done, and whether to try again.

SurfaceError
├── Wait          Slack wants no more of this for a while
├── Unshowable    Slack does not take these blocks; it may take plainer ones
└── Lost          the workspace's token no longer works, until somebody installs Nod again
"""

from __future__ import annotations

from aiohttp import ClientConnectorError
from slack_sdk.errors import SlackApiError

from bot.surfaces.base import SurfaceError

__all__ = ["Lost", "Unshowable", "Wait", "code_of", "fault_of"]

#: Seconds to wait where Slack says to wait and not how long, and after a fault of its own.
WAIT, PAUSE = 30.0, 2.0

_UNSHOWABLE = frozenset(
    {
        "invalid_blocks",
        "invalid_blocks_format",
        "msg_blocks_too_long",
        "msg_too_long",
        "markdown_text_conflict",
    }
)
_LOST = frozenset(
    {
        "account_inactive",
        "invalid_auth",
        "not_authed",
        "org_login_required",
        "token_expired",
        "token_revoked",
    }
)
#: Slack's own trouble: nobody knows whether it was done.
_UNCLEAR = frozenset({"fatal_error", "internal_error", "request_timeout", "service_unavailable"})

_FIXES = {
    "channel_not_found": "Check the id, and invite Nod to the channel.",
    "is_archived": "Choose a channel that is in use.",
    "missing_scope": "Add the scope to the app and install it again; `nod slack` checks them.",
    "not_in_channel": "Invite Nod to the channel: /invite @Nod.",
    "team_access_not_granted": "An admin of the organization adds Nod to this workspace.",
    "user_not_found": "Check the id of the person.",
}


class Wait(SurfaceError):
    """Slack wants no more of this for a while."""

    def __init__(self, seconds: float) -> None:
        super().__init__("Slack asks to wait.", retry_after=seconds)
        self.seconds = seconds


class Unshowable(SurfaceError):
    """Slack does not take what is shown in this form."""


class Lost(SurfaceError):
    """The token of a workspace no longer works."""


def code_of(error: SlackApiError) -> str:
    """Return Slack's error code; empty: the answer was none of Slack's."""
    try:
        return str(error.response.get("error") or "")
    except AttributeError:  # not JSON: then there is a bare HTTP response
        return ""


def fault_of(error: Exception, method: str) -> SurfaceError:
    """Return what a failed call means. `error` is of slack_sdk, aiohttp or a time-out."""
    if isinstance(error, SlackApiError):
        return _answered(error, method)
    if isinstance(error, ClientConnectorError):
        return SurfaceError("Slack could not be reached.", retry_after=PAUSE)
    what = f"The connection broke during {method}."
    return SurfaceError(what, certain=False, retry_after=PAUSE)


def _answered(error: SlackApiError, method: str) -> SurfaceError:
    code = code_of(error)
    status = int(getattr(error.response, "status_code", 0) or 0)
    if code == "ratelimited" or status == 429:
        return Wait(_retry_after(error))
    if code in _LOST:
        return Lost(f"Slack no longer accepts the token ({code}).", "Install Nod again.")
    if code in _UNSHOWABLE:
        return Unshowable(f"Slack refused what was shown ({code}).")
    if status >= 500 or code in _UNCLEAR or not code:
        what = f"Slack failed during {method} ({code or status})."
        return SurfaceError(what, certain=False, retry_after=PAUSE)
    needed = error.response.get("needed", "") if code == "missing_scope" else ""
    told = f"{code}: {needed}" if needed else code
    return SurfaceError(f"Slack refused {method} ({told}).", _FIXES.get(code, ""))


def _retry_after(error: SlackApiError) -> float:
    """Return the seconds Slack asks to wait; it may say `ratelimited` with HTTP 200 too."""
    headers = getattr(error.response, "headers", None) or {}
    said = headers.get("Retry-After") or headers.get("retry-after") or ""
    return float(said) if str(said).isdecimal() else WAIT
