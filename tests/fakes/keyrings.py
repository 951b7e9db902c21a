"""A keyring that works, and keeps what it is given in the open; for a process of its own."""

from __future__ import annotations

from typing import Any, ClassVar

from keyring.backend import KeyringBackend

__all__ = ["PlaintextKeyring"]


class PlaintextKeyring(KeyringBackend):
    """What an automatic choice would take where keyrings.alt is installed."""

    priority: Any = 9
    held: ClassVar[dict[tuple[str, str], str]] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.held.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.held[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.held[service, username]
