"""Settings: what wins, what is found without being set, and a sentence for everything wrong."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from bot import settings
from engine.errors import SettingsError


def environ(tmp_path: Path, text: str | None = None, **more: str) -> dict[str, str]:
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    if text is not None:
        (home / "nod.toml").write_text(text, encoding="utf-8")
    return {"NOD_HOME": str(home), "TZ": "Europe/Berlin", **more}


def test_without_a_file_everything_has_a_default(tmp_path: Path) -> None:
    found = settings.load(environ(tmp_path))
    assert found.data == tmp_path / "home"
    assert found.store == str(tmp_path / "home" / "nod.db")
    assert (found.mode, found.persona, found.model) == ("interactive", "cowork", "")
    assert (found.zone, found.limits.iterations, found.retention_days) == ("Europe/Berlin", 150, 0)
    assert found.file is None


def test_the_file_is_read_whole(tmp_path: Path) -> None:
    text = """
        model = "anthropic:claude-sonnet-5"
        fallbacks = ["openai:gpt-5.6-sol"]
        mode = "auto"
        allowlist = ["git status"]
        zone = "Asia/Tokyo"
        catalogue = "models.toml"
        log_level = "debug"
        [providers.gate]
        base_url = "http://gate.example/v1"
        [limits]
        iterations = 20
        [ceilings]
        turns = 7
        [retention]
        days = 30
    """
    found = settings.load(environ(tmp_path, text))
    assert found.model == "anthropic:claude-sonnet-5"
    assert found.fallbacks == ("openai:gpt-5.6-sol",)
    assert found.allowlist == ("git status",)
    assert (found.mode, found.zone, found.log_level) == ("auto", "Asia/Tokyo", "debug")
    assert found.catalogue == tmp_path / "home" / "models.toml"
    assert found.gateways == {"gate": {"base_url": "http://gate.example/v1"}}
    assert (found.limits.iterations, found.ceilings.turns, found.retention_days) == (20, 7, 30)


def test_the_environment_wins_over_the_file(tmp_path: Path) -> None:
    found = settings.load(
        environ(
            tmp_path,
            'mode = "auto"\n[limits]\niterations = 20\n',
            NOD_MODE="plan",
            NOD_LIMITS_ITERATIONS="5",
            NOD_ALLOWLIST="git status, git log",
        )
    )
    assert (found.mode, found.limits.iterations) == ("plan", 5)
    assert found.allowlist == ("git status", "git log")


def test_another_file_can_be_named(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text('mode = "discuss"\ncatalogue = "mine.toml"\n', encoding="utf-8")
    found = settings.load(environ(tmp_path, 'mode = "auto"\n', NOD_CONFIG=str(other)))
    assert (found.mode, found.catalogue) == ("discuss", tmp_path / "mine.toml")


def test_the_server_listens_only_where_it_was_told(tmp_path: Path) -> None:
    assert settings.load(environ(tmp_path)).web.port is None
    found = settings.load(environ(tmp_path, '[web]\nport = 9000\nurl = "https://nod.example/"\n'))
    assert (found.web.host, found.web.port) == ("127.0.0.1", 9000)
    assert found.web.url == "https://nod.example"


def test_a_platform_that_reads_procfiles_names_the_port(tmp_path: Path) -> None:
    assert settings.load(environ(tmp_path, PORT="5000")).web == settings.Web(
        host="0.0.0.0", port=5000
    )
    found = settings.load(environ(tmp_path, "[web]\nport = 9000\n", PORT="5000"))
    assert (found.web.host, found.web.port) == ("127.0.0.1", 9000)


def test_platforms_are_set_in_tables_and_variables(tmp_path: Path) -> None:
    text = '[slack]\nmode = "http"\n[telegram]\nbase_url = "http://127.0.0.1:1"\n'
    found = settings.load(environ(tmp_path, text, NOD_DISCORD_BASE_URL="http://127.0.0.1:2/api"))
    assert (found.slack.mode, found.telegram.mode) == ("http", "polling")
    assert found.telegram.base_url == "http://127.0.0.1:1"
    assert found.discord.base_url == "http://127.0.0.1:2/api"


WRONG = [
    ("unknown_key", '\nmodle = "x"\n', "nod.toml, line 2: there is no setting 'modle'", "'model'"),
    ("unknown_everything", "qqqq = 1\n", "line 1: there is no setting 'qqqq'", "Settings are"),
    ("wrong_section", "[limits]\nmode = 'auto'\n", "line 2: there is no setting", "'mode'?"),
    ("no_section", "iterations = 3\n", "line 1: there is no setting", "'limits.iterations'?"),
    ("wrong_type", "model = 3\n", "line 1: 'model' must be text in quotes; it is 3", "Mend"),
    ("wrong_type_in_section", "mode = 'auto'\n[limits]\n\niterations = 'x'\n", "line 4", "number"),
    ("yes_is_no_number", "[limits]\niterations = true\n", "a whole number; it is true", "Mend"),
    ("list_of_numbers", "allowlist = [1]\n", "'allowlist' must be a list of texts", "Mend"),
    ("not_a_choice", "mode = 'fast'\n", "'mode' cannot be 'fast'", "discuss, plan, interactive"),
    ("too_small", "limits.iterations = 0\n", "line 1: 'limits.iterations' must be 1 or", "it is 0"),
    ("table_for_text", "[mode]\nx = 1\n", "'mode' must be text in quotes; it is a table", "line 1"),
    ("broken_toml", 'mode = "auto"\nmodel = x\n', "nod.toml, line 2, column 9: invalid", "Mend"),
    ("cut_off", 'mode = "auto', "nod.toml", "Mend that line"),
    ("providers_no_table", "providers = 3\n", "line 1: 'providers' must be tables", "[providers."),
    ("no_such_zone", "zone = 'Mars/Base'\n", "no such time zone", "Europe/Berlin"),
    ("zone_out_of_the_folder", "zone = '../../etc/passwd'\n", "no such time zone", "IANA"),
]


@pytest.mark.parametrize(("text", "what", "fix"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_a_wrong_file_is_told_with_its_place_and_next_step(
    tmp_path: Path, text: str, what: str, fix: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        settings.load(environ(tmp_path, text))
    assert what in str(caught.value)
    assert fix in str(caught.value)
    assert "\n" not in str(caught.value)


WRONG_VARIABLES = [
    ("near_a_name", {"NOD_MODLE": "x"}, "variable NOD_MODLE", "Did you mean NOD_MODE"),
    ("not_a_choice", {"NOD_MODE": "fast"}, "NOD_MODE: 'mode' cannot be 'fast'", "Choose one of"),
    ("not_a_number", {"NOD_RETENTION_DAYS": "two"}, "must be a whole number; it is 'two'", "Mend"),
    ("below_zero", {"NOD_RETENTION_DAYS": "-1"}, "must be 0 or more; it is -1", "Mend"),
    ("no_such_file", {"NOD_CONFIG": "/nowhere/nod.toml"}, "there is no such file", "unset"),
]


@pytest.mark.parametrize(
    ("more", "what", "fix"), [w[1:] for w in WRONG_VARIABLES], ids=[w[0] for w in WRONG_VARIABLES]
)
def test_a_wrong_variable_is_named(
    tmp_path: Path, more: dict[str, str], what: str, fix: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        settings.load(environ(tmp_path, **more))
    assert what in str(caught.value)
    assert fix in str(caught.value)


def test_a_file_that_is_no_text_is_told(tmp_path: Path) -> None:
    names = environ(tmp_path)
    (tmp_path / "home" / "nod.toml").write_bytes(b"mode = '\xff\xfe'")
    with pytest.raises(SettingsError, match="it is not UTF-8 text"):
        settings.load(names)


def test_a_byte_order_mark_and_windows_lines_are_no_fault(tmp_path: Path) -> None:
    names = environ(tmp_path)
    (tmp_path / "home" / "nod.toml").write_bytes(b'\xef\xbb\xbfmode = "auto"\r\n')
    assert settings.load(names).mode == "auto"


def test_a_variable_of_something_else_is_left_alone_and_shown(tmp_path: Path) -> None:
    assert settings.load(environ(tmp_path, NOD_FAULT_SEED="3")).ignored == ("NOD_FAULT_SEED",)


def test_the_password_of_the_store_is_in_no_repr(tmp_path: Path) -> None:
    found = settings.load(environ(tmp_path, NOD_STORE="postgresql://nod:hush@db.example/nod"))
    assert "hush" not in repr(found)
    assert found.store_shown == "postgresql://nod:…@db.example/nod"


FOLDERS = [
    ("named", {"NOD_HOME": "/x/y", "HOME": "/h"}, "linux", "/x/y"),
    ("xdg", {"XDG_DATA_HOME": "/share", "HOME": "/h"}, "linux", "/share/nod"),
    ("linux", {"HOME": "/h"}, "linux", "/h/.local/share/nod"),
    ("mac", {"HOME": "/h"}, "darwin", "/h/Library/Application Support/nod"),
]


@pytest.mark.parametrize(
    ("names", "system", "folder"), [f[1:] for f in FOLDERS], ids=[f[0] for f in FOLDERS]
)
def test_the_data_folder_is_where_the_system_keeps_such(
    monkeypatch: pytest.MonkeyPatch, names: dict[str, str], system: str, folder: str
) -> None:
    monkeypatch.setattr("sys.platform", system)
    assert settings.data_folder(names) == Path(folder)


def test_a_new_data_folder_is_for_its_owner_only(tmp_path: Path) -> None:
    found = settings.load({"NOD_HOME": str(tmp_path / "a" / "b")})
    settings.make_data_folder(found)
    assert stat.S_IMODE(found.data.stat().st_mode) == 0o700


def test_a_data_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    found = settings.load({"NOD_HOME": str(tmp_path / "file" / "nod")})
    with pytest.raises(SettingsError, match="Set NOD_HOME to a folder you may write to"):
        settings.make_data_folder(found)


ZONES = [
    ("from_the_variable", "Asia/Tokyo", "Asia/Tokyo"),
    ("posix_colon", ":Asia/Tokyo", "Asia/Tokyo"),
    ("nonsense_falls_back", "Mars/Base", "Europe/Rome"),
]


@pytest.mark.parametrize(("tz", "zone"), [z[1:] for z in ZONES], ids=[z[0] for z in ZONES])
def test_the_zone_is_the_systems_unless_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tz: str, zone: str
) -> None:
    monkeypatch.setattr(settings, "_system_zone", lambda: "Europe/Rome")
    assert settings.load(environ(tmp_path) | {"TZ": tz}).zone == zone
