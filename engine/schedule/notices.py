"""Notices about what was to happen later: the person whose it is reads them and marks them seen."""

from __future__ import annotations

from engine import inbox
from engine.clock import mint
from engine.store.base import Tx

__all__ = ["tell"]


def tell(
    tx: Tx,
    tenant: str,
    owner: str,
    *,
    subject: str,
    title: str,
    text: str,
    now: float,
    session: str | None = None,
    retry: bool = False,
) -> inbox.Prompt:
    """Raise a notice that `owner` may mark as seen; a second one of its subject changes nothing.

    `retry` offers to try again from the last message of `session`.
    """
    options = ["seen", "retry"] if retry else ["seen"]
    payload = {
        "card": subject,
        "title": title,
        "text": text,
        "retry": retry,
        "options_allowed": options,
    }
    return inbox.ask(
        tx,
        inbox.Prompt(
            id=mint("p"),
            tenant=tenant,
            session=session,
            kind="notice",
            subject=subject,
            payload=payload,
            approvers={"role": "owner", "person": owner, "own_suffices": True},
            created_at=now,
            deadline=now + inbox.DEADLINE,
        ),
    )
