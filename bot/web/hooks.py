"""Answers `POST /hooks/<token>`: who calls a hook fires its event, stored before it is answered.

A path that is no hook's is a 404 like any other. What is too long, too often or not signed as the
hook asks is turned down before anything is kept.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.canonical import clean
from engine.clock import Now
from engine.errors import ScheduleError, StoreError, VaultError
from engine.schedule import hooks, named
from engine.schedule.hooks import Hook
from engine.store.base import Store

if TYPE_CHECKING:  # aiohttp is loaded with the server
    from aiohttp import web

    from bot.web.address import Web
    from connectors.registry import Secrets

__all__ = ["Hooks"]

#: Calls of one hook: so many at once, then one more each second.
BURST = 60
#: Seconds within which a signed time must lie, and a body must have come.
SKEW, SLOW = 300.0, 10.0
#: Characters of a sender's id of a delivery.
DELIVERY = 200

#: Headers that carry the sender's own id of a delivery, so that a second copy is a no-op.
#: https://docs.github.com/en/webhooks/webhook-events-and-payloads#delivery-headers
#: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
_DELIVERIES = ("X-GitHub-Delivery", "Idempotency-Key", "Webhook-Id")


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class Hooks:
    """The hooks' path on the HTTP server.

    Args:
        fired: called after an event was stored; must not wait.
    """

    def __init__(
        self, *, store: Store, web: Web, secrets: Secrets, now: Now, fired: Callable[[], None]
    ) -> None:
        self._store = store
        self._web = web
        self._secrets = secrets
        self._now = now
        self._fired = fired
        self._buckets: dict[str, _Bucket] = {}
        self._opened = False

    async def start(self, tenant: str) -> None:
        """Open the path when there is a hook, or an address: another process may make one.

        Raises SettingsError when it cannot be.
        """
        standing = await self._store.read(lambda tx: hooks.standing(tx, tenant))
        if standing or self._web.port:
            await self.address("")

    async def address(self, token: str) -> str:
        """Return where a hook is called; the path is open from now on.

        Raises SettingsError when the address cannot be listened on.
        """
        if not self._opened:
            await self._web.add("POST", "/hooks/*", self._answer)
            self._opened = True
        return f"{self._web.url}/hooks/{token}"

    async def keep_key(self, hook: Hook, key: str) -> None:
        """Keep the key of a hook's signatures; raises VaultError when it cannot be."""
        await asyncio.to_thread(self._secrets.set, hook.secret, key)

    async def forget_key(self, hook: Hook) -> None:
        """Forget the key of a hook's signatures; raises VaultError when it cannot be."""
        await asyncio.to_thread(self._secrets.delete, hook.secret)

    # -- one call

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        from aiohttp import web

        token = request.path.rpartition("/")[2]
        try:
            hook = await self._hook(token)
            if hook is None:
                raise web.HTTPNotFound(text="There is nothing here.\n")
            if wait := self._wait(hook.id):
                raise web.HTTPTooManyRequests(
                    text="Too many calls.\n", headers={"Retry-After": str(wait)}
                )
            body = await _body(request)
            if hook.secret and not await self._signed(hook, request.headers, body):
                raise web.HTTPUnauthorized(text="The signature does not fit.\n")
            return await self._take(hook, request.headers, body)
        except (StoreError, VaultError) as error:
            raise web.HTTPServiceUnavailable(
                text="Not now.\n", headers={"Retry-After": "10"}
            ) from error

    async def _hook(self, token: str) -> Hook | None:
        if not hooks.is_token(token):  # whoever tries paths costs no look at the store
            return None
        return await self._store.read(lambda tx: hooks.of_token(tx, token))

    async def _take(
        self, hook: Hook, headers: Mapping[str, str], body: bytes
    ) -> web.StreamResponse:
        from aiohttp import web

        kind = headers.get("X-GitHub-Event", "")
        if kind == "ping":  # the sender only tries whether somebody answers
            return web.Response(text="pong\n")
        try:
            payload = clean(body.decode())
        except UnicodeDecodeError:
            raise web.HTTPUnsupportedMediaType(text="The body must be UTF-8 text.\n") from None
        if kind:
            payload = f"X-GitHub-Event: {clean(kind)[:80]}\n{payload}"
        delivery = next((headers[name] for name in _DELIVERIES if headers.get(name)), "")
        try:
            event = await self._store.write(
                lambda tx: hooks.called(tx, hook, payload, delivery[:DELIVERY], self._now())
            )
        except ScheduleError as error:
            raise web.HTTPNotFound(text="There is nothing here.\n") from error
        if event is None:
            return web.json_response({"event": None, "duplicate": True})
        self._fired()
        return web.json_response({"event": event}, status=202)

    def _wait(self, hook: str) -> int:
        """Take one call from the hook's share; return the seconds until there is one, else 0."""
        now = self._now()
        bucket = self._buckets.setdefault(hook, _Bucket(BURST, now))
        bucket.left = min(BURST, bucket.left + max(0.0, now - bucket.at))
        bucket.at = now
        if bucket.left < 1:
            return 1
        bucket.left -= 1
        return 0

    async def _signed(self, hook: Hook, headers: Mapping[str, str], body: bytes) -> bool:
        key = await asyncio.to_thread(self._secrets.get, hook.secret)
        if not key:
            raise VaultError(f"The key of hook {hook.id} is gone.")
        return fits(key, headers, body, self._now())


def fits(key: str, headers: Mapping[str, str], body: bytes, now: float) -> bool:
    """Say whether a call carries a signature of `body` under `key`.

    Known are X-Hub-Signature-256 (GitHub and many others), and X-Slack-Signature, whose time must
    be near `now` (epoch seconds).
    https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
    https://docs.slack.dev/authentication/verifying-requests-from-slack
    """
    given = headers.get("X-Hub-Signature-256", "")
    if given:
        return hmac.compare_digest(given.encode(), f"sha256={_mac(key, body)}".encode())
    given, stamp = (
        headers.get("X-Slack-Signature", ""),
        headers.get("X-Slack-Request-Timestamp", ""),
    )
    if not given or not stamp.isascii() or not stamp.isdecimal():
        return False
    if abs(now - int(stamp)) > SKEW:
        return False
    signed = b"v0:" + stamp.encode() + b":" + body
    return hmac.compare_digest(given.encode(), f"v0={_mac(key, signed)}".encode())


def _mac(key: str, data: bytes) -> str:
    return hmac.new(key.encode(), data, "sha256").hexdigest()


async def _body(request: web.Request) -> bytes:
    """Read the body, no further than it may be long."""
    from aiohttp import web

    limit = named.PAYLOAD_LIMIT - 1_000  # room for what is told of the sender
    too_large = web.HTTPRequestEntityTooLarge(max_size=limit, actual_size=limit + 1)
    if (request.content_length or 0) > limit:
        raise too_large
    parts, size = [], 0
    try:
        async with asyncio.timeout(SLOW):
            async for part in request.content.iter_chunked(65_536):
                size += len(part)
                if size > limit:
                    raise too_large
                parts.append(part)
    except TimeoutError:
        raise web.HTTPRequestTimeout(text="The body took too long.\n") from None
    return b"".join(parts)
