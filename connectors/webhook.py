"""Webhooks: sends JSON to an address a person has named, signed so that it can be trusted there.

Our own: it is one request. The signature is GitHub's form, which receivers know how to check:
`X-Hub-Signature-256: sha256=<HMAC of the body>`.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from typing import Any
from urllib.parse import urlsplit

from connectors.base import Api, Connector, Field, Identity, Key, Limits, Result, Risk
from connectors.http import check_public
from engine.canonical import dumps
from engine.errors import ToolError

__all__ = ["CONNECTOR"]

CONNECTOR = webhook = Connector(
    name="webhook",
    title="The webhook",
    about="Send JSON to an address of yours.",
    base="",
    docs="https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries",
    auth=(
        Key(
            fields=(
                Field(name="name", title="Name", secret=False, hint="What you call it in chat."),
                Field(name="url", title="Address", hint="Where the JSON goes; https."),
                Field(
                    name="secret",
                    title="Secret",
                    hint="With it the body is signed, in X-Hub-Signature-256.",
                    optional=True,
                ),
            ),
        ),
    ),
    limits=Limits(per_minute=60, at_once=2, body_bytes=1_000_000),
    address=lambda fields: str(fields["url"]),
)

#: Bytes of what is sent, and of an answer that are passed on.
BODY, ANSWER = 200_000, 2_000


@webhook.check
async def check(api: Api) -> Identity:
    """Take the name; whether the address answers is seen when something is sent."""
    fields = await api.secret()
    if not str(fields["url"]).startswith("https://") and "base_url" not in api.options:
        raise ToolError("The address does not begin with https://.", "Give one that does.")
    if "base_url" not in api.options:
        host = urlsplit(str(fields["url"])).hostname or ""
        await asyncio.to_thread(check_public, host, fix="Give one that others reach, too.")
    return Identity(label=fields["name"], text=f"{fields['name']} is known; nothing was sent.")


@webhook.tool(risk=Risk.EXTERNAL, target=lambda _arguments: ["address"])
async def send(api: Api, payload: dict[str, Any]) -> Result:
    """Send JSON to a webhook; `account` is its name.

    Args:
        payload: The JSON object.
    """
    body = dumps(payload).encode()
    if len(body) > BODY:
        raise ToolError(f"The JSON has {len(body):,} bytes, {BODY:,} are the limit.", "Send less.")
    # With this a receiver can tell a repetition (as in draft-ietf-httpapi-idempotency-key-header).
    headers = {"Content-Type": "application/json", "Idempotency-Key": api.ctx.call}
    secret = str((await api.secret()).get("secret", ""))
    if secret:
        signed = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        headers["X-Hub-Signature-256"] = f"sha256={signed}"
    answer = await api.act("POST", "", data=body, headers=headers)
    said = answer.body[:ANSWER].decode("utf-8", "replace")
    return api.result({"status": answer.status, "answer": said})
