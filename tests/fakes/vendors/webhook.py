"""A receiver of webhooks: it checks the signature and counts what it took."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

from aiohttp import web

from tests.fakes.vendors.cases import Case
from tests.fakes.vendors.service import Refused, Service

__all__ = ["ACTS", "FIELDS", "READS", "Fake"]

READS = ()
ACTS = (
    Case(
        tool="webhook_send",
        arguments={"payload": {"deploy": "done"}},
        gives="200",
        target=("webhook:address",),
        method="POST",
    ),
)

#: What a person fills in; `{url}` is where this server listens.
FIELDS = {"name": "ana", "url": "{url}", "secret": "hook-secret-1"}


class Fake(Service):
    """The receiver."""

    def routes(self) -> None:
        self.on("POST", "/", self._take, open=True)

    async def _take(self, request: web.Request) -> Any:
        body = await request.read()
        signed = hmac.new(b"hook-secret-1", body, hashlib.sha256).hexdigest()
        if not self.tokens:
            raise Refused(401, {"message": "who are you"})
        if request.headers.get("X-Hub-Signature-256") != f"sha256={signed}":
            raise Refused(403, {"message": "bad signature"})
        if not request.headers.get("Idempotency-Key"):
            raise Refused(400, {"message": "no key"})
        self.acts.append(await request.json())
        return web.Response(text="thanks")
