"""Keeps secrets encrypted, behind the interface of keyring; refuses to keep them in plain text.

Where they lie: the keyring backend that PYTHON_KEYRING_BACKEND names, else the system's own keyring
when it works, else <data>/vault.db: AES-256-GCM, one row a secret, bound to its name. The master
key is a credential of systemd, else a key file, else a passphrase.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError

from engine.errors import VaultError

__all__ = ["MasterKey", "SqliteVault", "find_key", "make_key_file"]

SERVICE = "nod"
#: Bytes of a key and of a nonce (NIST SP 800-38D, 8.2: 96 bits).
KEY_BYTES, NONCE_BYTES = 32, 12
#: Cost of turning a passphrase into a key: 2^15, 8, 1 need 32 MB and about 0.1 s.
SCRYPT_N, SCRYPT_R, SCRYPT_P = 2**15, 8, 1
#: Bytes of one secret.
SECRET_BYTES = 100_000

_CHECK = b"nod vault"
_SCHEMA = """
create table meta (name text primary key, value blob not null);
create table keys (id integer primary key, box blob not null, nonce blob not null);
create table secret (service text not null, username text not null, key integer not null,
                     nonce blob not null, box blob not null, primary key (service, username));
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterKey:
    """What opens the vault: 32 bytes, or a passphrase they are made from."""

    raw: bytes = field(default=b"", repr=False)
    passphrase: str = field(default="", repr=False)
    #: Where it came from, for what is told to a person.
    origin: str

    def derive(self, salt: bytes) -> bytes:
        """Return the 32 bytes."""
        if self.raw:
            return self.raw
        kdf = Scrypt(salt=salt, length=KEY_BYTES, n=SCRYPT_N, r=SCRYPT_R, p=SCRYPT_P)
        return kdf.derive(self.passphrase.encode())


def find_key(environ: Mapping[str, str], data: Path) -> MasterKey | None:
    """Return the master key of this installation, or None.

    Looked for in this order: $CREDENTIALS_DIRECTORY/nod-vault-key (systemd.exec(5)), the file
    NOD_VAULT_KEY_FILE names, <data>/vault.key, the passphrase NOD_VAULT_PASSPHRASE.

    Raises VaultError when a key file can be read by others, or is no key.
    """
    folder = environ.get("CREDENTIALS_DIRECTORY", "")
    candidates = [(Path(folder) / "nod-vault-key", False)] if folder else []
    named = environ.get("NOD_VAULT_KEY_FILE", "")
    candidates.append((Path(named).expanduser(), True) if named else (data / "vault.key", True))
    for path, strict in candidates:
        if named and strict and not path.exists():
            raise VaultError(f"NOD_VAULT_KEY_FILE names {path}, which is not there.", _MEND)
        if path.exists():
            return MasterKey(raw=_read_key(path, strict=strict), origin=str(path))
    passphrase = environ.get("NOD_VAULT_PASSPHRASE", "")
    if passphrase:
        return MasterKey(passphrase=passphrase, origin="NOD_VAULT_PASSPHRASE")
    return None


_MEND = "Set it to a file of 32 bytes that only you can read, or unset it."


def _read_key(path: Path, *, strict: bool) -> bytes:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        raw = path.read_bytes()
    except OSError as error:
        raise VaultError(f"The key file {path} cannot be read ({error.strerror}).", _MEND) from None
    if strict and mode & 0o077:
        raise VaultError(
            f"The key file {path} can be read by others (mode {mode:o}).",
            f"Run: chmod 600 '{path}'",
        )
    if len(raw) != KEY_BYTES:
        raise VaultError(f"The key file {path} is not {KEY_BYTES} bytes long.", "Restore it.")
    return raw


def make_key_file(path: Path) -> MasterKey:
    """Make a key file, for its owner only, and return the key; one that is there is never touched.

    Raises VaultError when it cannot be written.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(os.urandom(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise VaultError(f"No key can be written to {path} ({error.strerror}).") from error
    return MasterKey(raw=_read_key(path, strict=True), origin=str(path))


class SqliteVault(KeyringBackend):
    """Our own keyring backend: a SQLite file of encrypted rows. Blocking; safe in many processes.

    The data key that encrypts rows is random and lies in the file, encrypted with the master key,
    so that a new master key touches one row, and a new data key is one transaction.
    """

    #: Never chosen by keyring itself; whoever wants it asks for it.
    priority = 0

    def __init__(self, path: Path, master: MasterKey) -> None:
        """Open the vault, or make it. Raises VaultError: damaged, or another key."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._path = path
        self._master = master
        self._keys: dict[int, bytes] = {}
        with self._open(make=True) as db:
            self._unlock(db)

    # -- keyring's interface

    def get_password(self, service: str, username: str) -> str | None:
        """Return the secret, or None. Raises VaultError when its row was tampered with."""
        with self._open() as db:
            row = db.execute(
                "select key, nonce, box from secret where service = ? and username = ?",
                (service, username),
            ).fetchone()
            return None if row is None else self._opened(db, service, username, row)

    def set_password(self, service: str, username: str, password: str) -> None:
        """Keep the secret; an earlier one of that name is replaced."""
        if not username or not username.isprintable():
            raise VaultError("A secret needs a name.")
        if len(password.encode()) > SECRET_BYTES:
            raise VaultError(f"A secret has at most {SECRET_BYTES:,} bytes.")
        with self._open() as db:
            self._unlock(db)
            self._write(db, service, username, password)

    def delete_password(self, service: str, username: str) -> None:
        """Forget the secret; raises PasswordDeleteError when there is none."""
        with self._open() as db:
            gone = db.execute(
                "delete from secret where service = ? and username = ?", (service, username)
            )
            if not gone.rowcount:
                raise PasswordDeleteError(username)

    # -- beyond keyring

    def names(self, service: str = SERVICE) -> list[str]:
        """Return the names of the secrets, sorted; no value is decrypted."""
        with self._open() as db:
            query = "select username from secret where service = ? order by username"
            return [row[0] for row in db.execute(query, (service,))]

    def rotate(self) -> int:
        """Encrypt everything anew under a new data key.

        Returns how many secrets there are. One transaction: a crash leaves the old or the new.
        """
        with self._open() as db:
            self._unlock(db)
            rows = db.execute("select service, username, key, nonce, box from secret").fetchall()
            held = [(r[0], r[1], self._opened(db, r[0], r[1], r[2:])) for r in rows]
            number = max(self._keys) + 1
            db.execute("delete from keys")
            self._keys = {number: self._new_key(db, number)}
            for service, username, value in held:
                self._write(db, service, username, value)
        return len(held)

    # -- the file

    @contextlib.contextmanager
    def _open(self, *, make: bool = False) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction; nothing is written when it fails."""
        if make and not self._path.exists():
            self._make()
        try:
            uri = f"{self._path.absolute().as_uri()}?mode=rw"
            db = sqlite3.connect(uri, uri=True, timeout=10.0, isolation_level=None)
        except sqlite3.Error as error:
            raise self._damaged(error) from error
        try:
            db.execute("pragma secure_delete = on")
            db.execute("begin immediate")
            yield db
            db.execute("commit")
        except sqlite3.Error as error:
            raise self._damaged(error) from error
        finally:
            db.close()  # rolls back what was not committed

    def _make(self) -> None:
        """Make the file whole, beside its place, so that a crash leaves none or all of it."""
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        db = sqlite3.connect(draft, isolation_level=None)
        try:
            db.executescript(_SCHEMA)
            db.execute("insert into meta values ('salt', ?)", (os.urandom(16),))
            self._new_key(db, 1)
        finally:
            db.close()
        with contextlib.suppress(FileExistsError):  # another process was quicker
            os.link(draft, self._path)
        draft.unlink()

    def _new_key(self, db: sqlite3.Connection, number: int) -> bytes:
        made, nonce = os.urandom(KEY_BYTES), os.urandom(NONCE_BYTES)
        box = AESGCM(self._wrapping(db)).encrypt(nonce, made, _CHECK + str(number).encode())
        db.execute("insert into keys (id, box, nonce) values (?, ?, ?)", (number, box, nonce))
        return made

    def _wrapping(self, db: sqlite3.Connection) -> bytes:
        salt = db.execute("select value from meta where name = 'salt'").fetchone()
        if salt is None:
            raise self._damaged(None)
        return self._master.derive(salt[0])

    def _unlock(self, db: sqlite3.Connection) -> None:
        """Read the data keys, when they are not those known already."""
        rows = db.execute("select id, box, nonce from keys").fetchall()
        if not rows:
            raise self._damaged(None)
        if {row[0] for row in rows} == set(self._keys):
            return
        wrapping = AESGCM(self._wrapping(db))
        try:
            self._keys = {
                number: wrapping.decrypt(nonce, box, _CHECK + str(number).encode())
                for number, box, nonce in rows
            }
        except InvalidTag:
            raise VaultError(
                f"The vault {self._path} does not open with the key from {self._master.origin}.",
                "Bring the right key back; the vault was not touched.",
            ) from None

    def _write(self, db: sqlite3.Connection, service: str, username: str, value: str) -> None:
        number, nonce = max(self._keys), os.urandom(NONCE_BYTES)
        box = AESGCM(self._keys[number]).encrypt(nonce, value.encode(), _bound(service, username))
        db.execute(
            "insert or replace into secret (service, username, key, nonce, box) "
            "values (?, ?, ?, ?, ?)",
            (service, username, number, nonce, box),
        )

    def _opened(
        self, db: sqlite3.Connection, service: str, username: str, row: tuple[int, bytes, bytes]
    ) -> str:
        number, nonce, box = row
        if number not in self._keys:  # another process has rotated it
            self._unlock(db)
        try:
            opened = AESGCM(self._keys[number]).decrypt(nonce, box, _bound(service, username))
        except (InvalidTag, KeyError):
            raise VaultError(
                f"The secret '{username}' in {self._path} was damaged or tampered with.",
                f"Set it again: nod secrets set {username}",
            ) from None
        return opened.decode()

    def _damaged(self, error: sqlite3.Error | None) -> VaultError:
        if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
            return VaultError(f"The vault {self._path} is busy.", "Try again in a moment.")
        why = f" ({error})" if error is not None else ""
        return VaultError(
            f"The vault {self._path} is damaged{why}.",
            "Restore it from a backup, or move it away and set your secrets again; it was left "
            "as it is.",
        )


def _bound(service: str, username: str) -> bytes:
    """Return what a box is bound to, so that it opens under no other name."""
    return f"{len(service)}:{service}:{username}".encode()
