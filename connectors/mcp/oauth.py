"""OAuth of MCP servers: finds a server's authorization server, and has Nod registered there.

What a person then signs in with, the token, its renewal and its end are those of every connector
(`credentials.py`, `oauth.py`); here is only what is particular to MCP: discovery (RFC 9728, RFC
8414) and registration (RFC 7591), with the SDK's own addresses and forms. What was found is kept
in a file; who Nod is to the server, in the vault.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import urlsplit

from connectors.base import Identity, OAuth
from connectors.http import Http, Request, ServiceRefused, Unauthorized, Unreachable, Unsure
from connectors.mcp.servers import Server
from engine.errors import NeedsConnection, NodError, ToolError

if TYPE_CHECKING:
    import httpx2
    from pydantic import BaseModel

    from connectors.accounts import Account
    from connectors.base import Ground
    from engine.tools.base import Tool

__all__ = ["McpAccount", "Registration", "fits", "forget", "held", "register"]

#: Seconds for the server's first answer, and for a check of an account.
ASK, CHECK = 15.0, 25.0

M = TypeVar("M", bound="BaseModel")


class Vault(Protocol):
    """Where secrets are; blocking."""

    def get(self, name: str) -> str: ...
    def set(self, name: str, value: str) -> None: ...
    def delete(self, name: str) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What is known of a server's authorization server, and of Nod there."""

    authorize_url: str
    token_url: str
    revoke_url: str
    scopes: tuple[str, ...]
    #: The server as the token is bound to it (RFC 8707).
    resource: str
    #: Where the browser comes back to, as Nod was registered with it.
    redirect: str
    #: none, body or basic.
    client_auth: str
    #: Nod registered itself; otherwise a person did.
    own: bool


def _client(server: str) -> str:
    return f"MCP_{server.upper().replace('-', '_')}"


def held(file: Path) -> Registration:
    """Return what was found before; blocking. Raises NodError when nothing was."""
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
        return Registration(**{**said, "scopes": tuple(said["scopes"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        name = file.name.partition(".")[0]
        raise NodError(
            "It was not looked up yet how to connect it.", f"/mcp connect {name}"
        ) from error


def fits(file: Path, server: Server) -> bool:
    """Say whether what was found is about the server that has this name now; blocking."""
    found = _before(file)
    return found is not None and _covers(found.resource, server.url)


def _covers(resource: str, url: str) -> bool:
    """Say whether a token for `resource` is one for `url`: the same origin, and no path beside it.

    As the SDK does, which is not imported for it: nothing at a start waits for that.
    """
    whole, asked = urlsplit(resource), urlsplit(url)
    ports = [each.port or _PORTS.get(each.scheme) for each in (whole, asked)]
    same = (whole.scheme, whole.hostname) == (asked.scheme, asked.hostname) and len({*ports}) == 1
    return same and f"{asked.path.rstrip('/')}/".startswith(f"{whole.path.rstrip('/')}/")


_PORTS = {"https": 443, "http": 80}


def forget(name: str, file: Path, vault: Vault) -> None:
    """Forget what was found about the server, and who Nod is there if it registered; blocking."""
    found = _before(file)
    file.unlink(missing_ok=True)
    if found is not None and found.own:
        for end in ("ID", "SECRET"):
            vault.delete(f"{_client(name)}_CLIENT_{end}")


async def register(server: Server, redirect: str, file: Path, vault: Vault) -> None:
    """Find out how to connect the server, and register Nod there if that is needed.

    Raises NodError: it offers no OAuth, refuses, or a person must register Nod.
    """
    http = Http(allowed=(server.url,))
    try:
        found = await _discovered(http, server)
        before = await asyncio.to_thread(_before, file)
        client = _client(server.name)
        known = await asyncio.to_thread(vault.get, f"{client}_CLIENT_ID")
        if known and (before is None or not before.own or before.redirect == redirect):
            secret = await asyncio.to_thread(vault.get, f"{client}_CLIENT_SECRET")
            way = before.client_auth if before else "body" if secret else "none"
            made = _registration(server, found, redirect, way, own=bool(before and before.own))
        else:
            made = await _registered(http, server, found, redirect, vault)
    except (ServiceRefused, Unauthorized, Unreachable, Unsure) as error:
        raise NodError(
            f"{server.name} could not be connected: {error}", "Try again later."
        ) from error
    finally:
        await http.close()
    await asyncio.to_thread(_write, file, made)


def _before(file: Path) -> Registration | None:
    try:
        return held(file)
    except NodError:
        return None


def _write(file: Path, made: Registration) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = file.with_suffix(".new")
    new.write_text(json.dumps(asdict(made)), encoding="utf-8")
    new.replace(file)


# -- discovery


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The authorization server of a server."""

    metadata: Any
    resource: str
    scopes: tuple[str, ...]


async def _discovered(http: Http, server: Server) -> _Found:
    from mcp.client.auth import utils
    from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata
    from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url

    challenge = await _challenge(server)
    hinted = utils.extract_resource_metadata_from_www_auth(challenge)
    resource, issuer, protected = resource_url_from_server_url(server.url), None, None
    for url in utils.build_protected_resource_metadata_discovery_urls(hinted, server.url):
        protected = await _document(http, server, url, ProtectedResourceMetadata)
        if protected is not None and protected.authorization_servers:
            said = str(protected.resource)
            if not check_resource_allowed(requested_resource=resource, configured_resource=said):
                raise NodError(f"{server.name} says that it is another server: {said[:200]}.")
            resource, issuer = said, str(protected.authorization_servers[0])
            break
    for url in utils.build_oauth_authorization_server_metadata_discovery_urls(issuer, server.url):
        metadata = await _document(http, server, url, OAuthMetadata)
        if metadata is None:
            continue
        if issuer is not None and not utils.issuers_match(str(metadata.issuer), issuer):
            raise NodError(f"{server.name}: its authorization server is not who it should be.")
        ways = metadata.code_challenge_methods_supported
        if ways and "S256" not in ways:
            raise NodError(f"{server.name}: its sign-in knows no PKCE, so it is not used.")
        scope = utils.get_client_metadata_scopes(
            utils.extract_scope_from_www_auth(challenge), protected, metadata, ["refresh_token"]
        )
        return _Found(metadata=metadata, resource=resource, scopes=tuple((scope or "").split()))
    raise NodError(
        f"{server.name} offers no sign-in that could be found.",
        "Use a token of yours: --header 'Authorization=Bearer {NAME}'",
    )


async def _challenge(server: Server) -> httpx2.Response:
    """Ask the server without credentials, for what it says of them."""
    import httpx2

    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    accept = {"accept": "application/json, text/event-stream"}
    try:
        async with httpx2.AsyncClient(timeout=ASK) as client:
            async with client.stream("POST", server.url, json=body, headers=accept) as response:
                return response
    except httpx2.HTTPError as error:
        why = type(error).__name__
        raise NodError(f"{server.name} does not answer ({why}).", "Try again later.") from error


async def _document(http: Http, server: Server, url: str, kind: type[M]) -> M | None:
    """Return the document at `url`; None: there is none, or it is none of that kind."""
    from pydantic import ValidationError

    asked = Request(service=server.name, lane=f"mcp:{server.name}", method="GET", url=_safe(url))
    try:
        reply = await http.request(asked)
        return kind.model_validate_json(reply.body)
    except (ServiceRefused, Unauthorized, ValidationError):
        return None


def _safe(url: str) -> str:
    """Return the address; raises NodError where what is sent there could be read on the way."""
    here = ("http://127.0.0.1:", "http://localhost:", "http://[::1]:")
    if not url.startswith(("https://", *here)):
        raise NodError(f"{url[:200]} is no https address, so it is not used to sign in.")
    return url


# -- registration


async def _registered(
    http: Http, server: Server, found: _Found, redirect: str, vault: Vault
) -> Registration:
    from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata
    from pydantic import ValidationError

    client, metadata = _client(server.name), found.metadata
    if metadata.registration_endpoint is None:
        raise NodError(
            f"{server.name} does not register Nod by itself.",
            f"Make an OAuth client there with the redirect address {redirect}, then: "
            f"nod secrets set {client}_CLIENT_ID, and {client}_CLIENT_SECRET if it has one",
        )
    form = OAuthClientMetadata.model_validate(
        {
            "redirect_uris": [redirect],
            "client_name": "Nod",
            "scope": " ".join(found.scopes) or None,
            "grant_types": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_method": _way(metadata.token_endpoint_auth_methods_supported),
            "application_type": "web" if redirect.startswith("https:") else "native",
        }
    )
    asked = Request(
        service=server.name,
        lane=f"mcp:{server.name}",
        method="POST",
        url=_safe(str(metadata.registration_endpoint)),
        headers={"content-type": "application/json"},
        body=form.model_dump_json(by_alias=True, exclude_none=True).encode(),
        act=True,
    )
    try:
        said = OAuthClientInformationFull.model_validate_json((await http.request(asked)).body)
    except ValidationError as error:
        raise NodError(f"{server.name} registers Nod in a way that is no use.") from error
    secret = said.client_secret or ""
    await asyncio.to_thread(vault.set, f"{client}_CLIENT_ID", str(said.client_id))
    if secret:
        await asyncio.to_thread(vault.set, f"{client}_CLIENT_SECRET", secret)
    ways = {"none": "none", "client_secret_post": "body", "client_secret_basic": "basic"}
    way = ways.get(str(said.token_endpoint_auth_method), "body" if secret else "none")
    return _registration(server, found, redirect, way, own=True)


def _way(supported: list[str] | None) -> str:
    """Return how Nod will say who it is; without a secret, where that is taken."""
    known = ("none", "client_secret_post", "client_secret_basic")
    return next((each for each in known if each in (supported or known)), "none")


def _registration(
    server: Server, found: _Found, redirect: str, way: str, *, own: bool
) -> Registration:
    metadata = found.metadata
    revoke = metadata.revocation_endpoint
    return Registration(
        authorize_url=_safe(str(metadata.authorization_endpoint)),
        token_url=_safe(str(metadata.token_endpoint)),
        revoke_url=_safe(str(revoke)) if revoke else "",
        scopes=found.scopes,
        resource=found.resource,
        redirect=redirect,
        client_auth=way,
        own=own,
    )


# -- as a connector


class McpAccount:
    """A server, as what connects accounts sees it: ways to sign in, and a check of an account."""

    #: It is of no use without an account.
    open = False

    def __init__(
        self, server: Server, registration: Registration, tools: tuple[Tool, ...], check: Any
    ) -> None:
        bound: Mapping[str, str] = {"resource": registration.resource}
        self.auth = (
            OAuth(
                authorize_url=registration.authorize_url,
                token_url=registration.token_url,
                revoke_url=registration.revoke_url,
                scopes=registration.scopes,
                client=_client(server.name),
                extra=bound,
                token_extra=bound,
                client_auth=registration.client_auth,
            ),
        )
        self._server = server
        self._tools = tools
        self._check = check

    def tools(self, ground: Ground) -> tuple[Tool, ...]:
        """Return what is in the registry already: connecting changes nothing about it."""
        return self._tools

    async def identity(self, ground: Ground, account: Account) -> Identity:
        """Return whom the server takes the account for: it lists its tools to it."""
        try:
            async with asyncio.timeout(CHECK):
                count = await self._check(self._server, account)
        except TimeoutError:
            raise ToolError(f"{self._server.name} did not answer in time.") from None
        except NeedsConnection:
            raise
        return Identity(label=self._server.name, text=f"{self._server.where}, {count} tools.")
