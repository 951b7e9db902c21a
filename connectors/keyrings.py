"""Where Nod's secrets are kept: chosen when the first is set, never left to chance.

An archive of secrets for another machine is encrypted with a passphrase of its own.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import keyring
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from keyring.backend import KeyringBackend
from keyring.errors import KeyringError, PasswordDeleteError

from connectors.credentials import held_values
from connectors.vault import (
    NONCE_BYTES,
    SERVICE,
    MasterKey,
    SqliteVault,
    find_key,
    make_key_file,
)
from engine.errors import VaultError

__all__ = ["SecretStore", "open_store"]

#: `set` below is a method.
Names: TypeAlias = set[str]

#: The entry in which the names are kept, for backends that cannot list.
_INDEX = "nod-secret-names"
_ARCHIVE = "nod-secrets-1"


class SecretStore:
    """Secrets by name. Every method is blocking, and may raise VaultError."""

    def __init__(self, backend: KeyringBackend, where: str) -> None:
        self._backend = backend
        #: What is told to a person.
        self.where = where

    def get(self, name: str) -> str:
        """Return the secret; empty: there is none."""
        try:
            return self._backend.get_password(SERVICE, name) or ""
        except KeyringError as error:
            raise _failed(self.where, error) from error

    def set(self, name: str, value: str) -> None:
        """Keep the secret, encrypted."""
        try:
            self._backend.set_password(SERVICE, name, value)
            if not isinstance(self._backend, SqliteVault):
                self._note({*self.names(), name})
        except KeyringError as error:
            raise _failed(self.where, error) from error

    def delete(self, name: str) -> bool:
        """Forget the secret; False: there was none."""
        try:
            self._backend.delete_password(SERVICE, name)
        except PasswordDeleteError:
            return False
        except KeyringError as error:
            raise _failed(self.where, error) from error
        if not isinstance(self._backend, SqliteVault):
            self._note({*self.names()} - {name})
        return True

    def names(self) -> list[str]:
        """Return the names of all secrets, sorted."""
        if isinstance(self._backend, SqliteVault):
            return self._backend.names()
        return sorted(json.loads(self.get(_INDEX) or "[]"))

    def values(self) -> list[str]:
        """Return every secret word, for the list of what no log may show."""
        return [word for name in self.names() for word in held_values(name, self.get(name))]

    def rotate(self) -> int:
        """Encrypt everything under a new key; return how many secrets there are."""
        if not isinstance(self._backend, SqliteVault):
            raise VaultError(f"Secrets are kept in {self.where}, which has keys of its own.")
        return self._backend.rotate()

    def export(self, passphrase: str) -> str:
        """Return all secrets as one text, encrypted with the passphrase."""
        held = {name: self.get(name) for name in self.names()}
        salt, nonce = os.urandom(16), os.urandom(NONCE_BYTES)
        key = MasterKey(passphrase=_long(passphrase), origin="passphrase").derive(salt)
        box = AESGCM(key).encrypt(nonce, json.dumps(held).encode(), _ARCHIVE.encode())
        return f"{_ARCHIVE}:{base64.b64encode(salt + nonce + box).decode()}"

    def bring_in(self, archive: str, passphrase: str) -> list[str]:
        """Keep all secrets of an archive and return their names; what is there is replaced.

        Raises VaultError when it is no archive, or the passphrase is another one.
        """
        kind, _, text = archive.strip().partition(":")
        try:
            raw = base64.b64decode(text, validate=True) if kind == _ARCHIVE else b""
            key = MasterKey(passphrase=passphrase, origin="passphrase").derive(raw[:16])
            opened = AESGCM(key).decrypt(raw[16:28], raw[28:], _ARCHIVE.encode())
        except (ValueError, InvalidTag):
            raise VaultError(
                "This is no archive of secrets, or the passphrase is another one."
            ) from None
        held: dict[str, str] = json.loads(opened)
        for name, value in held.items():
            self.set(name, value)
        return sorted(held)

    def _note(self, names: Names) -> None:
        self._backend.set_password(SERVICE, _INDEX, json.dumps(sorted(names)))


def open_store(environ: Mapping[str, str], data: Path, *, make: bool) -> SecretStore | None:
    """Return where this installation keeps its secrets; None: it keeps none yet.

    `make` chooses a place when there is none. Raises VaultError: the backend that was named does
    not work or keeps plain text, or our vault is damaged or does not open.
    """
    vault, mark = data / "vault.db", data / "keyring"
    if environ.get("PYTHON_KEYRING_BACKEND") or mark.exists():
        return _system()  # it was named, or the first secret went there
    key = find_key(environ, data)
    if key is not None:
        return SecretStore(SqliteVault(vault, key), str(vault)) if make or vault.exists() else None
    if vault.exists():
        raise VaultError(
            f"There is a vault at {vault}, and no key for it.",
            f"Bring {data / 'vault.key'} back, or set NOD_VAULT_KEY_FILE or NOD_VAULT_PASSPHRASE.",
        )
    if not make:
        return None
    if _works(keyring.get_keyring()):
        mark.touch(0o600)
        return _system()
    return SecretStore(SqliteVault(vault, make_key_file(data / "vault.key")), str(vault))


def _system() -> SecretStore:
    try:
        backend = keyring.get_keyring()
        works = _works(backend)
    except Exception:  # noqa: BLE001  # broad: the variable may name anything, which is loaded
        works = False
    if not works:
        raise VaultError(
            "The keyring that is chosen does not work, or keeps plain text.",
            "Set PYTHON_KEYRING_BACKEND to another one, or unlock it.",
        )
    return SecretStore(backend, f"the keyring {type(backend).__name__}")


def _works(backend: KeyringBackend) -> bool:
    """Write, read and delete a probe; a keyring of plain text counts as none."""
    if "plaintext" in type(backend).__name__.lower() or backend.priority <= 0:
        return False
    probe = secrets.token_hex(8)
    try:
        backend.set_password(SERVICE, f"probe-{probe}", probe)
        read = backend.get_password(SERVICE, f"probe-{probe}")
        backend.delete_password(SERVICE, f"probe-{probe}")
    except Exception:  # noqa: BLE001  # broad: backends raise what their system raises
        return False
    return read == probe


def _long(passphrase: str) -> str:
    if len(passphrase) < 12:
        raise VaultError("The passphrase is too short.", "Use 12 characters or more.")
    return passphrase


def _failed(where: str, error: KeyringError) -> VaultError:
    return VaultError(f"{where} refused ({type(error).__name__}).", "See the system's keyring.")
