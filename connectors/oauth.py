"""OAuth 2 against a vendor: authorization code with PKCE, device flow, renewal, revocation.

The protocol's pieces are oauthlib's: well kept, without I/O and without dependencies, so that one
aiohttp session carries all of it. Authlib fits less: its clients bring httpx or requests, and a
JOSE library we have no use for. oauthlib is loaded when something is connected; its types come
from types-oauthlib.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urlencode

from engine.clock import Now
from engine.errors import NodError

if TYPE_CHECKING:
    import aiohttp

    from connectors.base import OAuth

__all__ = ["Client", "DeviceGrant", "OAuthError", "Token", "Vendor", "verifier_of"]

#: Seconds a token endpoint may take; bytes of its answer.
TIMEOUT, ANSWER = 20.0, 100_000
#: Seconds between two polls of a device grant when the vendor names none (RFC 8628, 3.2), and what
#: `slow_down` adds (3.5).
INTERVAL, SLOWER = 5.0, 5.0

#: Answers that say the person's grant is gone; every other error is a fault of set-up or passing.
_GONE = frozenset(
    {"invalid_grant", "access_denied", "bad_refresh_token", "expired_token", "token_revoked"}
    | {"bad_verification_code", "invalid_refresh_token", "token_expired"}
)
_TOKENS = frozenset({"access_token", "refresh_token", "id_token", "expires_in", "expires_at"})


class OAuthError(NodError):
    """The vendor said no, or did not answer.

    Args:
        gone: True: the person's grant is refused for good, so they must connect anew.
    """

    def __init__(self, what: str, fix: str = "", *, gone: bool = False, code: str = "") -> None:
        super().__init__(what, fix)
        self.gone = gone
        #: The error code of the protocol; empty: there was none.
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Who Nod is to the vendor."""

    id: str
    secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What the vendor gave."""

    access: str = field(repr=False)
    refresh: str = field(default="", repr=False)
    #: Seconds since the epoch; None: it does not expire, or the vendor does not say.
    expires_at: float | None = None
    token_type: str = "Bearer"
    scopes: tuple[str, ...] = ()
    #: What else the vendor said: a workspace's name and the like.
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGrant:
    """What the person types at the vendor's page, and what Nod asks with meanwhile."""

    user_code: str
    url: str
    device_code: str = field(repr=False)
    #: Seconds between two polls.
    interval: float
    until: float


def verifier_of(key: bytes, state: str) -> str:
    """Return the PKCE verifier that goes with a state: 43 characters, kept nowhere (RFC 7636)."""
    made = hmac.new(key, b"pkce:" + state.encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(made).rstrip(b"=").decode()


class Vendor:
    """Speaks OAuth to any vendor; its connections open with the first request."""

    def __init__(self, now: Now, pause: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._now = now
        self._pause = pause
        self._session: aiohttp.ClientSession | None = None

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    # -- authorization code

    def authorize_url(
        self, auth: OAuth, client: Client, *, redirect: str, state: str, verifier: str
    ) -> str:
        """Return where the person's browser is sent. Raises OAuthError when it is no https."""
        from oauthlib.oauth2 import WebApplicationClient
        from oauthlib.oauth2.rfc6749.errors import OAuth2Error

        protocol = WebApplicationClient(client.id)
        challenge = protocol.create_code_challenge(verifier, "S256")
        try:
            return str(
                protocol.prepare_request_uri(
                    auth.authorize_url,
                    redirect_uri=redirect,
                    scope=list(auth.scopes),
                    state=state,
                    code_challenge=challenge,
                    code_challenge_method="S256",
                    **auth.extra,
                )
            )
        except OAuth2Error as error:
            raise _said(error) from None

    async def exchange(
        self, auth: OAuth, client: Client, *, code: str, redirect: str, verifier: str
    ) -> Token:
        """Return the token for a code. Raises OAuthError."""
        from oauthlib.oauth2 import WebApplicationClient

        protocol = WebApplicationClient(client.id)
        body = protocol.prepare_request_body(
            code=code,
            redirect_uri=redirect,
            code_verifier=verifier,
            include_client_id=auth.client_auth != "basic",
            **_secret(auth, client),
            **auth.token_extra,
        )
        return await self._token(auth, client, protocol, body)

    async def refresh(self, auth: OAuth, client: Client, token: Token) -> Token:
        """Return a new token; one without a new refresh token keeps the old. Raises OAuthError."""
        from oauthlib.oauth2 import WebApplicationClient

        protocol = WebApplicationClient(client.id)
        body = protocol.prepare_refresh_body(
            refresh_token=token.refresh,
            client_id=client.id,
            include_client_id=auth.client_auth != "basic",
            **_secret(auth, client),
            **auth.token_extra,
        )
        return await self._token(auth, client, protocol, body, before=token)

    async def revoke(self, auth: OAuth, client: Client, token: Token) -> bool:
        """Tell the vendor that the token is not to hold any more; False: it could not be told."""
        from oauthlib.oauth2 import WebApplicationClient
        from oauthlib.oauth2.rfc6749.errors import OAuth2Error

        if not auth.revoke_url:
            return False
        hint: Literal["access_token", "refresh_token"]
        hint = "refresh_token" if token.refresh else "access_token"
        try:
            url, _, body = WebApplicationClient(client.id).prepare_token_revocation_request(
                auth.revoke_url,
                token.refresh or token.access,
                token_type_hint=hint,
                **({} if auth.client_auth == "basic" else {"client_id": client.id}),
                **_secret(auth, client),
            )
            status, _ = await self._post(url, body, _basic(auth, client))
        except (OAuth2Error, OAuthError):
            return False
        return status < 300

    # -- device flow (RFC 8628)

    async def device_begin(self, auth: OAuth, client: Client) -> DeviceGrant:
        """Begin a device grant. Raises OAuthError."""
        form = {"client_id": client.id, "scope": " ".join(auth.scopes)}
        status, text = await self._post(auth.device_url, urlencode(form))
        try:
            said = json.loads(text)
            return DeviceGrant(
                user_code=str(said["user_code"])[:40],
                url=str(said.get("verification_uri") or said["verification_url"])[:500],
                device_code=str(said["device_code"]),
                interval=float(said.get("interval") or INTERVAL),
                until=self._now() + float(said.get("expires_in") or 600),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            raise OAuthError(f"The service gave no code for a device (status {status}).") from None

    async def device_wait(self, auth: OAuth, client: Client, grant: DeviceGrant) -> Token:
        """Wait until the person has said yes at the vendor's page. Raises OAuthError otherwise."""
        from oauthlib.oauth2 import DeviceClient

        protocol, pause = DeviceClient(client.id), grant.interval
        body = protocol.prepare_request_body(
            grant.device_code, include_client_id=True, scope="", **_secret(auth, client)
        )
        while self._now() < grant.until:
            await self._pause(pause)
            try:
                return await self._token(auth, client, protocol, body)
            except OAuthError as error:
                if error.code not in ("authorization_pending", "slow_down"):
                    raise
                pause += SLOWER if error.code == "slow_down" else 0.0
        raise OAuthError("The code was not used in time.", "Ask for another one.", gone=True)

    # -- the wire

    async def _token(
        self,
        auth: OAuth,
        client: Client,
        protocol: Any,
        body: str,
        *,
        before: Token | None = None,
    ) -> Token:
        from oauthlib.oauth2.rfc6749.errors import OAuth2Error

        status, text = await self._post(auth.token_url, body, _basic(auth, client))
        if status >= 500 or status == 429:
            raise OAuthError(f"The service gave no token (status {status}).", "Try again later.")
        try:
            said = protocol.parse_request_body_response(_of_person(text))
        except OAuth2Error as error:
            raise _said(error) from None
        except (ValueError, TypeError, AttributeError):
            raise OAuthError(f"The service gave no token (status {status}).") from None
        if not (isinstance(said["access_token"], str) and said["access_token"]):
            raise OAuthError(f"The service gave no token (status {status}).")
        lasts = said.get("expires_in")
        return Token(
            access=said["access_token"],
            refresh=said.get("refresh_token") or (before.refresh if before else ""),
            expires_at=self._now() + float(lasts) if lasts else None,
            token_type=str(said.get("token_type") or "Bearer"),
            scopes=_scopes(said) or (before.scopes if before else ()),
            extra=_extra(said) or (before.extra if before else {}),
        )

    async def _post(
        self, url: str, body: str, more: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=TIMEOUT),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept": "application/json", "User-Agent": "nod"},
            )
        headers = {"Content-Type": "application/x-www-form-urlencoded", **(more or {})}
        try:
            async with self._session.post(
                url, data=body.encode(), headers=headers, allow_redirects=False
            ) as answer:
                held = b""
                async for piece in answer.content.iter_any():
                    held += piece
                    if len(held) > ANSWER:
                        raise OAuthError("The service that gives tokens says too much.")
                return answer.status, held.decode("utf-8", "replace")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise OAuthError(
                f"The service that gives tokens did not answer ({type(error).__name__}).",
                "Try again later.",
            ) from None


def _of_person(text: str) -> str:
    """Return the answer with a person's token on top, which Slack puts under `authed_user`.

    https://docs.slack.dev/reference/methods/oauth.v2.access
    """
    try:
        said = json.loads(text)
    except ValueError:
        return text
    person = said.get("authed_user") if isinstance(said, dict) else None
    if not isinstance(person, dict) or "access_token" not in person or "access_token" in said:
        return text
    return json.dumps({**said, **person})


def _secret(auth: OAuth, client: Client) -> dict[str, str]:
    """Return the client's secret for a body, where it goes there (RFC 6749, 2.3.1)."""
    return {"client_secret": client.secret} if auth.client_auth == "body" and client.secret else {}


def _basic(auth: OAuth, client: Client) -> dict[str, str]:
    if auth.client_auth != "basic":
        return {}
    pair = f"{quote(client.id, safe='')}:{quote(client.secret, safe='')}"
    return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def _said(error: Any) -> OAuthError:
    """Return the error of ours; of what the vendor wrote, only the code is kept."""
    code = str(getattr(error, "error", "") or "")
    code = code if re.fullmatch(r"[A-Za-z_.]{1,60}", code) else type(error).__name__
    if code in _GONE:
        return OAuthError(
            f"The service refused it ({code}).", "Connect it anew.", gone=True, code=code
        )
    fix = "Check the client id, its secret and the redirect address in the service's settings."
    return OAuthError(f"The service did not give a token ({code}).", fix, code=code)


def _scopes(said: Mapping[str, Any]) -> tuple[str, ...]:
    scopes = said.get("scope") or ()
    parts = scopes.split() if isinstance(scopes, str) else scopes
    return tuple(one for part in parts for one in str(part).split(",") if one)


def _extra(said: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the vendor's short remarks beside the token."""
    return {
        name: value
        for name, value in said.items()
        if name not in _TOKENS | {"scope", "token_type"}
        and isinstance(value, str | int)
        and len(str(value)) <= 200
    }
