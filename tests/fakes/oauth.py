"""A strict authorization server: PKCE checked, codes once, refresh tokens that rotate, devices.

A refresh token that comes a second time revokes its whole family, as RFC 9700 (4.14.2) advises.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from connectors.base import OAuth

__all__ = ["FakeOAuth", "fake_oauth", "oauth_at"]

_BAD = "invalid_request"


@dataclass(slots=True)
class FakeOAuth:
    """What the server holds, and what it saw."""

    url: str = ""
    client_id: str = "nod-client"
    client_secret: str = "nod-client-secret"
    lasts: int | None = 3600
    #: code -> (challenge, redirect)
    codes: dict[str, tuple[str, str]] = field(default_factory=dict)
    #: refresh token -> True: not used yet
    refresh: dict[str, bool] = field(default_factory=dict)
    live: set[str] = field(default_factory=set)
    refreshes: int = 0
    revoked: list[str] = field(default_factory=list)
    #: Keys of its API, and how often somebody asked who they are.
    keys: set[str] = field(default_factory=lambda: {"good-key"})
    looked: int = 0
    searched: list[str] = field(default_factory=list)
    #: Errors of the token endpoint, the next first: (status, code).
    faults: list[tuple[int, str]] = field(default_factory=list)
    #: Refreshing brings a new refresh token, and ends the old one.
    rotates: bool = True
    #: What the token endpoint answers in place of anything else.
    raw: str | None = None
    #: (Authorization, whether the secret was in the body), for each request for a token.
    seen: list[tuple[str, bool]] = field(default_factory=list)
    device_answers: list[str] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def grant(self) -> dict[str, str]:
        """Return an access and a refresh token, as if somebody had said yes."""
        number = next(self._numbers)
        access, refresh = f"access-token-{number:04}", f"refresh-token-{number:04}"
        self.live.add(access)
        self.refresh[refresh] = True
        return {"access_token": access, "refresh_token": refresh}

    def _answer(self) -> web.Response:
        body: dict[str, object] = {**self.grant(), "token_type": "bearer", "scope": "repo user"}
        if self.lasts is not None:
            body["expires_in"] = self.lasts
        return web.json_response(body, headers={"Cache-Control": "no-store"})

    def approve(self, challenge: str, redirect: str) -> str:
        """Return a code, as if the person had said yes."""
        code = f"code-{next(self._numbers):04}"
        self.codes[code] = (challenge, redirect)
        return code

    async def token(self, request: web.Request) -> web.Response:
        form = await request.post()
        header = request.headers.get("Authorization", "")
        self.seen.append((header, "client_secret" in form))
        if self.raw is not None:
            return web.Response(text=self.raw)
        if self.faults:
            status, code = self.faults.pop(0)
            return web.json_response({"error": code}, status=status)
        if request.content_type != "application/x-www-form-urlencoded":
            return _error(_BAD)
        if not header and form.get("client_id") != self.client_id:
            return _error("invalid_client", 401)
        match form.get("grant_type"):
            case "authorization_code":
                return self._code(form)
            case "refresh_token":
                return self._refresh(str(form.get("refresh_token")))
            case "urn:ietf:params:oauth:grant-type:device_code":
                if form.get("device_code") != "device-code-1":
                    return _error("invalid_grant")
                said = self.device_answers.pop(0)
                return self._answer() if said == "yes" else _error(said)
        return _error("unsupported_grant_type")

    def _code(self, form: object) -> web.Response:
        code = str(form.get("code"))  # type: ignore[attr-defined]
        held = self.codes.pop(code, None)
        if held is None:
            return _error("invalid_grant")
        verifier = str(form.get("code_verifier"))  # type: ignore[attr-defined]
        made = hashlib.sha256(verifier.encode()).digest()
        challenge = base64.urlsafe_b64encode(made).rstrip(b"=").decode()
        if (challenge, form.get("redirect_uri")) != held:  # type: ignore[attr-defined]
            return _error("invalid_grant")
        if form.get("client_secret") != self.client_secret:  # type: ignore[attr-defined]
            return _error("invalid_client", 401)
        return self._answer()

    def _refresh(self, token: str) -> web.Response:
        if not self.refresh.get(token):
            if token in self.refresh:  # it came twice: the whole family is revoked
                self.refresh = dict.fromkeys(self.refresh, False)
                self.live.clear()
            return _error("invalid_grant")
        self.refreshes += 1
        self.live.clear()
        if not self.rotates:
            return web.json_response({"access_token": self.grant()["access_token"]})
        self.refresh[token] = False
        return self._answer()

    async def device(self, request: web.Request) -> web.Response:
        form = await request.post()
        if form.get("client_id") != self.client_id:
            return _error("invalid_client", 401)
        said = {"device_code": "device-code-1", "user_code": "WDJB-MJHT", "interval": 1}
        return web.json_response(
            {**said, "verification_uri": f"{self.url}/activate", "expires_in": 900}
        )

    async def userinfo(self, request: web.Request) -> web.Response:
        """Whose credentials these are."""
        self.looked += 1
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if given not in self.live | self.keys:
            return _error("invalid_token", 401)
        return web.json_response({"sub": "ana"})

    def withdraw(self) -> None:
        """A person ends what they granted, in the service's own settings."""
        self.live.clear()
        self.refresh = dict.fromkeys(self.refresh, False)

    async def things(self, request: web.Request) -> web.Response:
        """What the person's account holds."""
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.live:
            return _error("invalid_token", 401)
        self.searched.append(request.query.get("q", ""))
        return web.json_response({"things": [f"a {request.query.get('q')}"]})

    async def revoke(self, request: web.Request) -> web.Response:
        form = await request.post()
        self.revoked.append(str(form.get("token")))
        return web.Response()


def _error(code: str, status: int = 400) -> web.Response:
    return web.json_response({"error": code, "error_description": "no"}, status=status)


@asynccontextmanager
async def fake_oauth() -> AsyncIterator[FakeOAuth]:
    """Run the server on a free port of this machine."""
    fake = FakeOAuth()
    served = web.Application()
    served.router.add_post("/token", fake.token)
    served.router.add_post("/device", fake.device)
    served.router.add_post("/revoke", fake.revoke)
    served.router.add_get("/userinfo", fake.userinfo)
    served.router.add_get("/me", fake.things)
    runner = web.AppRunner(served, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield fake
    finally:
        await runner.cleanup()


def oauth_at(url: str) -> OAuth:
    """Return how a connector of this server is opened."""
    return OAuth(
        authorize_url=f"{url}/authorize",
        token_url=f"{url}/token",
        device_url=f"{url}/device",
        revoke_url=f"{url}/revoke",
        scopes=("repo", "user"),
        client="ACME",
    )
