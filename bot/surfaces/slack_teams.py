"""The workspaces Nod is installed in: their tokens, clients, and what they can do.

Tokens come from the configuration and from the vault, where an installation by OAuth is kept. A
workspace whose token is dead leaves the others at work, and the owner is told.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientError, ClientSession
from slack_sdk.errors import SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from bot import log
from bot.surfaces.base import SurfaceError
from bot.surfaces.config import Ground, SlackConfig
from bot.surfaces.slack_faults import Lost, Wait, fault_of
from bot.surfaces.slack_intake import Speaker, installations

__all__ = ["Team", "Teams", "client_of"]

#: Name of an installation in the vault, before the team's id.
KEPT = "SLACK_INSTALLATION_"
#: Seconds a call waits for Slack's leave by itself; whoever wants it later is told to come back.
PATIENCE = 10.0
#: People whose names are kept, by workspace.
NAMES = 10_000

_log = logging.getLogger(__name__)


def client_of(base_url: str, token: str, session: ClientSession | None) -> AsyncWebClient:
    """Return a client that never sends a request twice: who calls it knows what may be repeated."""
    return AsyncWebClient(
        token=token or None, base_url=base_url, session=session, retry_handlers=[]
    )


@dataclass(slots=True)
class Team:
    """One workspace, or all those of an organization the app was installed for as a whole.

    An organization's token serves its workspaces; the methods that would have to be told which one
    is meant (team_id) are none of those Nod calls.
    """

    speaker: Speaker
    name: str
    token: str = field(repr=False)
    client: AsyncWebClient = field(repr=False)
    #: Told when the token is dead.
    lost: Callable[[str, SurfaceError], Awaitable[None]] = field(repr=False)
    #: user id -> name, and -> the workspace they belong to, where it is told.
    names: dict[str, str] = field(default_factory=dict, repr=False)
    #: user id -> time zone of their profile, for those whose names are known.
    zones: dict[str, str] = field(default_factory=dict, repr=False)
    homes: dict[str, str] = field(default_factory=dict, repr=False)
    #: The app was installed for a whole organization.
    for_all: bool = False
    #: What this workspace was found not to take: methods.
    refused: set[str] = field(default_factory=set)
    #: Method -> time of the loop before which Slack wants no more of it.
    _closed_until: dict[str, float] = field(default_factory=dict, repr=False)

    @property
    def id(self) -> str:
        """The id of the team, or of the organization."""
        return self.speaker.team

    def belongs(self, user: str, workspace: str) -> None:
        """Learn which workspace somebody belongs to; empty: that is not told."""
        if not workspace.startswith("T"):
            return
        if len(self.homes) >= NAMES:
            self.homes.pop(next(iter(self.homes)))
        self.homes[user] = workspace

    async def call(self, method: str, **arguments: Any) -> Any:
        """Call a method by its name in the client, for example `chat_postMessage`.

        A name with a dot is Slack's own, and its arguments are sent as JSON: the client would put
        those of some methods into the address, which is too short for them. Waits a while where
        Slack asks to wait. Raises SurfaceError.
        """
        clock = asyncio.get_running_loop().time
        until = clock() + PATIENCE
        while True:
            pause = self._closed_until.get(method, 0.0) - clock()
            if clock() + pause > until:
                raise Wait(pause)
            if pause > 0:
                await asyncio.sleep(pause)
            try:
                if "." in method:
                    return await self.client.api_call(method, json=arguments)
                return await getattr(self.client, method)(**arguments)
            except (SlackClientError, ClientError, TimeoutError, OSError) as error:
                fault = fault_of(error, method)
                if isinstance(fault, Lost):
                    await self.lost(self.id, fault)
                if not isinstance(fault, Wait):
                    raise fault from error
            self._closed_until[method] = clock() + fault.seconds

    async def name_of(self, user: str, limit: float = 1.0) -> str:
        """Return a person's name, asked for once; their id when Slack does not say in time."""
        if user not in self.names:
            try:
                async with asyncio.timeout(limit):
                    found = await self.call("users_info", user=user)
                self.learn(found["user"])
            except (SurfaceError, TimeoutError, KeyError):
                return user
        return self.names.get(user, user)

    def learn(self, user: Any) -> None:
        """Keep the name of a user object."""
        if len(self.names) >= NAMES:
            first = next(iter(self.names))
            del self.names[first]
            self.zones.pop(first, None)
        profile = user.get("profile") or {}
        named = profile.get("display_name") or user.get("real_name") or user.get("name")
        self.names[user["id"]] = str(named or user["id"])
        self.zones[user["id"]] = str(user.get("tz") or "")


class Teams:
    """All workspaces. `connect` first."""

    def __init__(self, config: SlackConfig, ground: Ground, session: ClientSession) -> None:
        self._config = config
        self._ground = ground
        self._session = session
        self._teams: dict[str, Team] = {}

    def __iter__(self) -> Any:
        return iter(list(self._teams.values()))

    def get(self, team: str) -> Team:
        """Return a workspace; raises SurfaceError when Nod is not installed there."""
        found = self._teams.get(team)
        if found is None:
            raise SurfaceError(f"Nod is not installed in the Slack workspace {team}.", _INSTALL)
        return found

    def find(self, *ids: str | None) -> Team | None:
        """Return the first workspace, or organization, that Nod is installed in; None: none."""
        return next((self._teams[each] for each in ids if each and each in self._teams), None)

    def of(self, body: Mapping[str, Any]) -> Team:
        """Return where a payload comes from; raises SurfaceError when Nod is not there."""
        ids = installations(body)
        return self.find(*ids) or self.get(ids[0] if ids else "")

    async def connect(self) -> None:
        """Ask Slack whose each token is.

        Raises SurfaceError when no workspace is left, or Slack cannot be reached.
        """
        kept = await asyncio.to_thread(self._kept)
        numbered = enumerate(self._config.bot_tokens, 1)
        tokens = kept | {token: f"{n}. of SLACK_BOT_TOKEN" for n, token in numbered}
        faults: dict[str, SurfaceError] = {}
        for token, name in tokens.items():
            try:
                await self._add(token)
            except Lost as fault:
                faults[name] = fault
        if faults and not self._teams:
            raise next(iter(faults.values()))
        for name, each in faults.items():
            await self._tell(name, each)

    async def install(self, token: str) -> Team:
        """Keep the token of a new installation, encrypted. Raises SurfaceError, VaultError."""
        log.hide([token])
        team = await self._add(token)
        kept = json.dumps({"bot_token": token, "team": team.id, "name": team.name})
        await asyncio.to_thread(self._ground.secrets.set, KEPT + team.id, kept)
        return team

    async def remove(self, team: str) -> None:
        """The app was removed from a workspace: forget its token."""
        self._teams.pop(team, None)
        await asyncio.to_thread(self._ground.secrets.delete, KEPT + team)
        fault = SurfaceError("Nod was removed from the workspace.", _INSTALL)
        await self._tell(team, fault)

    async def _add(self, token: str) -> Team:
        client = client_of(self._config.base_url, token, self._session)
        try:
            who = await client.auth_test()
        except (SlackClientError, ClientError, TimeoutError, OSError) as error:
            raise fault_of(error, "auth_test") from error
        whole = who.get("enterprise_id") if who.get("is_enterprise_install") else None
        speaker = Speaker(team=whole or who["team_id"], user=who["user_id"], bot=who["bot_id"])
        name = str(who.get("team") or speaker.team)
        team = Team(
            speaker=speaker,
            name=name,
            token=token,
            client=client,
            lost=self._lost,
            for_all=bool(whole),
        )
        self._teams[team.id] = team
        return team

    def _kept(self) -> dict[str, str]:
        """Return the tokens of installations, each with the name of its workspace."""
        secrets = self._ground.secrets
        names = [name for name in secrets.names() if name.startswith(KEPT)]
        kept = [json.loads(secrets.get(name)) for name in names]
        return {each["bot_token"]: f"{each['name']} ({each['team']})" for each in kept}

    async def _lost(self, team: str, fault: SurfaceError) -> None:
        self._ground.counts.add("nod_surface_faults_total", surface="slack")
        await self._tell(team, fault)

    async def _tell(self, team: str, fault: SurfaceError) -> None:
        found = self._teams.get(team)
        name = f"{found.name} ({team})" if found else team
        _log.warning("the Slack workspace %s is lost: %s", team, fault)
        title = "A Slack workspace is not connected"
        text = f"Workspace {name}: {fault} The others go on. Check with: nod slack"
        await self._ground.notify(f"slack:{team}", title, text)


_INSTALL = "Install the app there, or set its SLACK_BOT_TOKEN."
