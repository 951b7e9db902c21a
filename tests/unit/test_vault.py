"""Secrets: encrypted, bound to their names, refused rather than kept in plain text."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from keyring.errors import PasswordDeleteError
from typer.testing import CliRunner

from bot import cli
from connectors.secrets import Secrets
from connectors.vault import SERVICE, MasterKey, SqliteVault, find_key, make_key_file
from engine.errors import VaultError

SECRET = "xoxb-very-secret-token"


@pytest.fixture
def vault(tmp_path: Path) -> SqliteVault:
    return SqliteVault(tmp_path / "vault.db", make_key_file(tmp_path / "vault.key"))


def again(tmp_path: Path) -> SqliteVault:
    key = find_key({}, tmp_path)
    assert key is not None
    return SqliteVault(tmp_path / "vault.db", key)


def kept(tmp_path: Path, **environ: str) -> Secrets:
    return Secrets(environ, tmp_path)


# -- the vault


def test_a_secret_comes_back_after_a_restart(vault: SqliteVault, tmp_path: Path) -> None:
    vault.set_password(SERVICE, "SLACK_BOT_TOKEN", SECRET)
    assert again(tmp_path).get_password(SERVICE, "SLACK_BOT_TOKEN") == SECRET
    assert again(tmp_path).get_password(SERVICE, "OTHER") is None


def test_nothing_in_the_file_can_be_read(vault: SqliteVault, tmp_path: Path) -> None:
    vault.set_password(SERVICE, "A", SECRET)
    vault.set_password(SERVICE, "A", "another-long-secret")
    vault.delete_password(SERVICE, "A")
    vault.set_password(SERVICE, "B", SECRET)
    raw = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert SECRET.encode() not in raw
    assert b"another-long-secret" not in raw


def test_only_the_owner_can_read_vault_and_key(vault: SqliteVault, tmp_path: Path) -> None:
    modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    assert modes == {"vault.db": 0o600, "vault.key": 0o600}


def test_a_secret_that_was_deleted_is_gone(vault: SqliteVault) -> None:
    vault.set_password(SERVICE, "A", SECRET)
    vault.delete_password(SERVICE, "A")
    assert vault.get_password(SERVICE, "A") is None
    with pytest.raises(PasswordDeleteError):
        vault.delete_password(SERVICE, "A")


def test_a_row_moved_to_another_name_does_not_open(vault: SqliteVault, tmp_path: Path) -> None:
    vault.set_password(SERVICE, "A", SECRET)
    with sqlite3.connect(tmp_path / "vault.db") as db:
        db.execute("update secret set username = 'B'")
    with pytest.raises(VaultError, match=r"'B'.*tampered"):
        vault.get_password(SERVICE, "B")


@pytest.mark.parametrize("column", ["box", "nonce"])
def test_a_changed_row_does_not_open(vault: SqliteVault, tmp_path: Path, column: str) -> None:
    vault.set_password(SERVICE, "A", SECRET)
    with sqlite3.connect(tmp_path / "vault.db") as db:
        db.execute(f"update secret set {column} = zeroblob(length({column}))")
    with pytest.raises(VaultError, match=r"tampered.*secrets set A"):
        vault.get_password(SERVICE, "A")


def test_another_key_opens_nothing_and_touches_nothing(vault: SqliteVault, tmp_path: Path) -> None:
    vault.set_password(SERVICE, "A", SECRET)
    before = (tmp_path / "vault.db").read_bytes()
    with pytest.raises(VaultError, match=r"does not open with the key from elsewhere.*not touched"):
        SqliteVault(tmp_path / "vault.db", MasterKey(raw=os.urandom(32), origin="elsewhere"))
    assert (tmp_path / "vault.db").read_bytes() == before


@pytest.mark.parametrize(
    "damage",
    [b"", b"not a database at all, just text", b"SQLite format 3\0" + b"\0" * 200],
    ids=["empty", "text", "torn"],
)
def test_a_damaged_vault_is_told_and_never_overwritten(
    vault: SqliteVault, tmp_path: Path, damage: bytes
) -> None:
    (tmp_path / "vault.db").write_bytes(damage)
    with pytest.raises(VaultError, match=r"is damaged.*left as it is"):
        again(tmp_path)
    assert (tmp_path / "vault.db").read_bytes() == damage
    with pytest.raises(VaultError):
        kept(tmp_path).set("A", SECRET)
    assert (tmp_path / "vault.db").read_bytes() == damage


def test_rotation_changes_every_box_and_no_secret(vault: SqliteVault, tmp_path: Path) -> None:
    other = again(tmp_path)  # as another process would have it open
    for n in range(5):
        vault.set_password(SERVICE, f"S{n}", f"value-{n}")
    with sqlite3.connect(tmp_path / "vault.db") as db:
        before = {row[0] for row in db.execute("select box from secret")}
    assert vault.rotate() == 5
    with sqlite3.connect(tmp_path / "vault.db") as db:
        after = {row[0] for row in db.execute("select box from secret")}
        assert [row[0] for row in db.execute("select id from keys")] == [2]
    assert not before & after
    assert [other.get_password(SERVICE, f"S{n}") for n in range(5)] == [
        f"value-{n}" for n in range(5)
    ]
    other.set_password(SERVICE, "S9", "late")
    assert vault.get_password(SERVICE, "S9") == "late"


def test_a_rotation_that_fails_changes_nothing(vault: SqliteVault, tmp_path: Path) -> None:
    vault.set_password(SERVICE, "A", SECRET)
    vault.set_password(SERVICE, "B", SECRET)
    with sqlite3.connect(tmp_path / "vault.db") as db:
        db.execute("update secret set box = zeroblob(40) where username = 'B'")
    with pytest.raises(VaultError):
        vault.rotate()
    assert again(tmp_path).get_password(SERVICE, "A") == SECRET


def test_a_passphrase_opens_it_and_another_does_not(tmp_path: Path) -> None:
    made = MasterKey(passphrase="correct horse battery", origin="NOD_VAULT_PASSPHRASE")
    SqliteVault(tmp_path / "vault.db", made).set_password(SERVICE, "A", SECRET)
    assert SqliteVault(tmp_path / "vault.db", made).get_password(SERVICE, "A") == SECRET
    wrong = MasterKey(passphrase="wrong horse battery", origin="NOD_VAULT_PASSPHRASE")
    with pytest.raises(VaultError, match="does not open"):
        SqliteVault(tmp_path / "vault.db", wrong)


def test_many_writers_at_once_lose_nothing(vault: SqliteVault, tmp_path: Path) -> None:
    others = [again(tmp_path) for _ in range(4)]

    def write(n: int) -> None:
        others[n % 4].set_password(SERVICE, f"S{n}", str(n))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(40)))
    assert len(vault.names()) == 40
    assert vault.get_password(SERVICE, "S39") == "39"


# -- the key


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    make_key_file(tmp_path / "vault.key")
    (tmp_path / "vault.key").chmod(0o640)
    with pytest.raises(VaultError, match=r"read by others \(mode 640\).*chmod 600"):
        find_key({}, tmp_path)


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_key_of_another_length_is_refused(tmp_path: Path, size: int) -> None:
    (tmp_path / "vault.key").write_bytes(b"k" * size)
    (tmp_path / "vault.key").chmod(0o600)
    with pytest.raises(VaultError, match="not 32 bytes"):
        find_key({}, tmp_path)


def test_a_key_file_is_never_overwritten(tmp_path: Path) -> None:
    made = make_key_file(tmp_path / "vault.key")
    with pytest.raises(VaultError):
        make_key_file(tmp_path / "vault.key")
    found = find_key({}, tmp_path)
    assert found is not None
    assert found.raw == made.raw


def test_the_order_in_which_a_key_is_looked_for(tmp_path: Path) -> None:
    environ = {"NOD_VAULT_PASSPHRASE": "a long passphrase"}
    assert find_key({}, tmp_path) is None
    found = [find_key(environ, tmp_path)]
    make_key_file(tmp_path / "vault.key")
    found.append(find_key(environ, tmp_path))
    make_key_file(tmp_path / "named.key")
    environ["NOD_VAULT_KEY_FILE"] = str(tmp_path / "named.key")
    found.append(find_key(environ, tmp_path))
    (tmp_path / "given").mkdir()
    make_key_file(tmp_path / "given" / "nod-vault-key")
    environ["CREDENTIALS_DIRECTORY"] = str(tmp_path / "given")
    found.append(find_key(environ, tmp_path))
    assert [Path(each.origin).name for each in found if each] == [
        "NOD_VAULT_PASSPHRASE",
        "vault.key",
        "named.key",
        "nod-vault-key",
    ]


def test_a_key_file_that_is_named_and_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(VaultError, match="which is not there"):
        find_key({"NOD_VAULT_KEY_FILE": str(tmp_path / "none")}, tmp_path)


def test_a_key_is_in_no_repr() -> None:
    key = MasterKey(raw=b"k" * 32, passphrase="horse", origin="x")
    assert "kkk" not in repr(key)
    assert "horse" not in repr(key)


# -- where secrets are kept


def test_the_environment_wins(tmp_path: Path) -> None:
    kept(tmp_path).set("DISCORD_BOT_TOKEN", "from-the-vault")
    assert kept(tmp_path).get("DISCORD_BOT_TOKEN") == "from-the-vault"
    assert kept(tmp_path, DISCORD_BOT_TOKEN="from-outside").get("DISCORD_BOT_TOKEN") == (
        "from-outside"
    )


def test_while_there_are_none_nothing_is_loaded_or_made(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from connectors.registry import secrets_of\n"
        f"found = secrets_of({{}}, Path({str(tmp_path)!r})); assert found.get('A') == ''\n"
        "assert found.names() == []; print('keyring' in sys.modules, 'cryptography' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False False\n"
    assert list(tmp_path.iterdir()) == []


def test_a_vault_whose_key_is_gone_is_told(vault: SqliteVault, tmp_path: Path) -> None:
    (tmp_path / "vault.key").unlink()
    with pytest.raises(VaultError, match="no key for it"):
        kept(tmp_path).get("A")


@pytest.mark.parametrize(
    "backend",
    ["keyring.backends.fail.Keyring", "tests.fakes.keyrings.PlaintextKeyring", "no.such.Keyring"],
)
def test_a_keyring_that_fails_or_keeps_plain_text_is_refused(tmp_path: Path, backend: str) -> None:
    code = (
        "from pathlib import Path; import os\n"
        "from connectors.registry import secrets_of; from engine.errors import VaultError\n"
        f"found = secrets_of(os.environ, Path({str(tmp_path)!r}))\n"
        "try: found.set('A', 'b')\n"
        "except VaultError as error: print(error)\n"
    )
    environ = {**os.environ, "PYTHON_KEYRING_BACKEND": backend}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environ
    )
    assert "plain text" in run.stdout, run.stderr
    assert list(tmp_path.iterdir()) == []


# -- the commands


@pytest.fixture
def nod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    for name in ("PYTHON_KEYRING_BACKEND", "CREDENTIALS_DIRECTORY", "SLACK_BOT_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NOD_HOME", str(tmp_path / "home"))
    return CliRunner()


def run(nod: CliRunner, *words: str, given: str = "") -> str:
    result = nod.invoke(cli.app, ["secrets", *words], input=given)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return str(result.exception)
    return str(result.output)


def test_a_secret_is_read_from_stdin_and_never_shown(nod: CliRunner, tmp_path: Path) -> None:
    said = [run(nod, "set", "SLACK_BOT_TOKEN", given=f"{SECRET}\n"), run(nod, "list")]
    assert "kept in" in said[0]
    assert "  SLACK_BOT_TOKEN\n" in said[1]
    assert SECRET not in "".join(said)
    assert kept(tmp_path / "home").get("SLACK_BOT_TOKEN") == SECRET


def test_a_value_is_no_argument(nod: CliRunner) -> None:
    assert "unexpected extra argument" in run(nod, "set", "SLACK_BOT_TOKEN", SECRET).lower()


def test_an_empty_value_is_refused(nod: CliRunner) -> None:
    assert "There is no value." in run(nod, "set", "A", given="\n")


def test_secrets_move_to_another_machine(nod: CliRunner, tmp_path: Path) -> None:
    run(nod, "set", "A", given="one\n")
    run(nod, "set", "B", given="two\n")
    archive = tmp_path / "secrets.archive"
    assert "too short" in run(nod, "export", str(archive), given="short\n")
    assert "2 secrets" in run(nod, "export", str(archive), given="a long passphrase\n")
    assert not re.search("one|two", archive.read_text().partition(":")[0])
    assert archive.stat().st_mode & 0o777 == 0o600
    nod.env = {"NOD_HOME": str(tmp_path / "other")}
    assert "another one" in run(nod, "import", str(archive), given="a wrong passphrase\n")
    assert "A, B" in run(nod, "import", str(archive), given="a long passphrase\n")
    assert kept(tmp_path / "other").get("B") == "two"


def test_an_archive_is_not_written_over(nod: CliRunner, tmp_path: Path) -> None:
    run(nod, "set", "A", given="one\n")
    (tmp_path / "there").write_text("mine")
    assert "there already" in run(nod, "export", str(tmp_path / "there"), given="a long passphrase")
    assert (tmp_path / "there").read_text() == "mine"


def test_a_secret_is_forgotten_and_the_rest_put_under_a_new_key(nod: CliRunner) -> None:
    run(nod, "set", "A", given="one\n")
    run(nod, "set", "B", given="two\n")
    assert "forgotten" in run(nod, "delete", "A")
    assert "no secret A" in run(nod, "delete", "A")
    assert "1 secrets" in run(nod, "rotate")
