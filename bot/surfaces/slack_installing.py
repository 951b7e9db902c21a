"""Installs Nod in further workspaces: Slack's OAuth 2.0, two routes of the HTTP server.

GET /slack/install          sends the browser to Slack, with a state bound to it by a cookie
GET /slack/oauth_redirect   takes the code back and keeps the workspace's token in the vault
https://docs.slack.dev/authentication/installing-with-oauth
"""

from __future__ import annotations

import hmac
import logging
import secrets
from urllib.parse import urlencode, urlsplit

from aiohttp import ClientError, ClientSession, web
from slack_sdk.errors import SlackClientError

from bot.guides.slack import SCOPES
from bot.surfaces.base import SurfaceError
from bot.surfaces.config import Ground, SlackConfig
from bot.surfaces.slack_faults import fault_of
from bot.surfaces.slack_teams import Teams, client_of
from engine.errors import VaultError

__all__ = ["Installer"]

INSTALL, REDIRECT = "/slack/install", "/slack/oauth_redirect"
#: Seconds a browser may take at Slack, and installations begun at once.
VALID, BEGUN = 600.0, 100

_COOKIE = "nod_slack_state"

_log = logging.getLogger(__name__)


class Installer:
    """The two routes; `start` adds them, `stop` takes them away."""

    def __init__(
        self, config: SlackConfig, ground: Ground, teams: Teams, session: ClientSession
    ) -> None:
        self._config = config
        self._ground = ground
        self._teams = teams
        self._session = session
        #: state -> until when it is good (epoch seconds).
        self._states: dict[str, float] = {}

    async def start(self) -> None:
        """Answer the two routes."""
        await self._ground.web.add("GET", INSTALL, self._begin)
        await self._ground.web.add("GET", REDIRECT, self._end)

    def stop(self) -> None:
        """Answer them no more."""
        self._ground.web.remove("GET", INSTALL)
        self._ground.web.remove("GET", REDIRECT)

    @property
    def _redirect(self) -> str:
        return f"{self._ground.web.url}{REDIRECT}"

    async def _begin(self, request: web.Request) -> web.StreamResponse:
        now = self._ground.now()
        self._states = {key: until for key, until in self._states.items() if until > now}
        if len(self._states) >= BEGUN:
            raise web.HTTPTooManyRequests(text="Too many installations at once. Try again soon.\n")
        state = secrets.token_urlsafe(24)
        self._states[state] = now + VALID
        asked = {
            "client_id": self._config.client_id,
            "scope": ",".join(SCOPES),
            "redirect_uri": self._redirect,
            "state": state,
        }
        address = f"{_authorize(self._config.base_url)}?{urlencode(asked)}"
        answer = web.Response(status=302, headers={"Location": address})
        secure = self._ground.web.url.startswith("https:")
        answer.set_cookie(
            _COOKIE, state, max_age=int(VALID), httponly=True, secure=secure, samesite="Lax"
        )
        return answer

    async def _end(self, request: web.Request) -> web.StreamResponse:
        state, code = request.query.get("state", ""), request.query.get("code", "")
        until = self._states.pop(state, 0.0)
        bound = hmac.compare_digest(request.cookies.get(_COOKIE, "").encode(), state.encode())
        if not bound or until <= self._ground.now():
            self._ground.counts.add("nod_refused_total", surface="slack", reason="state")
            raise web.HTTPUnauthorized(text=f"This link is not valid. Begin again at {INSTALL}.\n")
        if not code:
            return web.Response(text="Nod was not installed: you turned it down.\n")
        try:
            team = await self._teams.install(await self._token(code))
        except (SurfaceError, VaultError) as error:
            _log.warning("an installation failed: %s", error)
            return web.Response(status=502, text=f"Nod was not installed. {error}\n")
        told = _FOR_ALL if team.for_all else "Say hello to it in Slack."
        return web.Response(text=f"Nod is installed in {team.name}. {told}\n")

    async def _token(self, code: str) -> str:
        """Return the bot's token for the code of an installation; raises SurfaceError."""
        client = client_of(self._config.base_url, "", self._session)
        try:
            given = await client.api_call(
                "oauth.v2.access",
                data={
                    "client_id": self._config.client_id,
                    "client_secret": self._config.client_secret,
                    "code": code,
                    "redirect_uri": self._redirect,
                },
            )
        except (SlackClientError, ClientError, TimeoutError, OSError) as error:
            raise fault_of(error, "oauth_v2_access") from error
        if not given.get("access_token"):
            raise SurfaceError("Slack gave no token for a bot.", f"Begin again at {INSTALL}.")
        return str(given["access_token"])


_FOR_ALL = (
    "It is in no workspace of this organization yet: an admin adds it to them, in the "
    "organization's settings under Integrations, Installed apps."
)


def _authorize(base_url: str) -> str:
    """Return the page where a person consents; it lies beside the API."""
    parts = urlsplit(base_url)
    return f"{parts.scheme}://{parts.netloc}/oauth/v2/authorize"
