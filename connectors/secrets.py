"""Secrets by name, wherever they are kept; nothing heavy is loaded while there are none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from connectors.keyrings import SecretStore

__all__ = ["Secrets"]


class Secrets:
    """Every method is blocking, and raises VaultError when secrets cannot be read or kept."""

    def __init__(self, environ: Mapping[str, str], data: Path) -> None:
        self._environ = environ
        self._data = data
        self._store: SecretStore | None = None

    def store(self, *, make: bool = False) -> SecretStore | None:
        """Return where they are kept; None: nowhere yet, unless `make` says to choose a place."""
        if self._store is None and (make or self._any()):
            from connectors.keyrings import open_store

            self._store = open_store(self._environ, self._data, make=make)
        return self._store

    def get(self, name: str) -> str:
        """Return the secret; the environment wins; empty: there is none."""
        named = self._environ.get(name, "").strip()
        if named:
            return named
        store = self.store()
        return "" if store is None else store.get(name)

    def set(self, name: str, value: str) -> None:
        """Keep the secret, encrypted; the first one decides where."""
        store = self.store(make=True)
        assert store is not None, "a place was chosen"
        store.set(name, value)

    def delete(self, name: str) -> bool:
        """Forget the secret; False: there was none."""
        store = self.store()
        return store is not None and store.delete(name)

    def names(self) -> list[str]:
        """Return the names of what is kept, sorted."""
        store = self.store()
        return [] if store is None else store.names()

    def values(self) -> list[str]:
        """Return what is kept, for the list of what no log may show."""
        store = self.store()
        return [] if store is None else store.values()

    def _any(self) -> bool:
        named = bool(self._environ.get("PYTHON_KEYRING_BACKEND"))
        return named or any((self._data / name).exists() for name in ("vault.db", "keyring"))
