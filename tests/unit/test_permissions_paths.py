"""The fence: no spelling of a path leads out of a session's folders."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ToolError
from engine.permissions.paths import fence, is_own
from engine.tools.base import Root


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A writable root `own`, a read-only root `seen`, and `secret` outside of both."""
    for name in ("own/sub", "seen", "secret"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "secret/key").write_text("s")
    (tmp_path / "seen/page").write_text("p")
    links = {
        "own/out": "../secret",
        "own/dangling": "../secret/new",
        "own/in": "sub",
        "own/page": "../seen/page",
        "own/ring": "ring",
        "own/far": str(tmp_path / "secret/key"),
    }
    for link, target in links.items():
        (tmp_path / link).symlink_to(target)
    return tmp_path


def roots(place: Path) -> tuple[Root, ...]:
    return (Root(path=place / "own", writable=True, own=True), Root(path=place / "seen"))


@pytest.mark.parametrize(
    ("path", "mode", "real"),
    [
        pytest.param("a.txt", "write", "own/a.txt", id="new-file"),
        pytest.param("sub/../a", "write", "own/a", id="dots-inside"),
        pytest.param("no/such/folder/x", "write", "own/no/such/folder/x", id="missing-parents"),
        pytest.param(".", "write", "own", id="the-root-itself"),
        pytest.param("in/x", "write", "own/sub/x", id="link-inside"),
        pytest.param("page", "read", "seen/page", id="link-to-another-root"),
        pytest.param("../seen/page", "read", "seen/page", id="relative-to-another-root"),
        pytest.param("．．／x", "write", "own/．．／x", id="full-width-dots-are-a-name"),
        pytest.param("..\\x", "write", "own/..\\x", id="backslash-is-a-name"),
        pytest.param("sub/.gitignore", "write", "own/sub/.gitignore", id="git-ignore-file"),
    ],
)
def test_a_place_inside_is_resolved(place: Path, path: str, mode: str, real: str) -> None:
    assert fence(roots(place), path, mode, place / "own") == place / real


@pytest.mark.parametrize(
    ("path", "mode"),
    [
        pytest.param("/etc/hosts", "write", id="D-023-outside"),
        pytest.param("/etc/hosts", "read", id="read-outside"),
        pytest.param("../secret/key", "read", id="dots"),
        pytest.param("sub/../../secret/key", "read", id="dots-later"),
        pytest.param("missing/../../secret/key", "read", id="dots-after-a-missing-folder"),
        pytest.param("out/key", "read", id="D-026-link-to-folder"),
        pytest.param("far", "read", id="X-10-link-to-file"),
        pytest.param("dangling", "write", id="X-10-dangling-link"),
        pytest.param("out/new", "write", id="new-file-behind-a-link"),
        pytest.param("in/../../../secret/key", "read", id="dots-after-a-link"),
        pytest.param("page", "write", id="D-023-link-to-read-only-root"),
        pytest.param("../seen/new", "write", id="D-023-read-only-root"),
        pytest.param("../own-evil/x", "write", id="root-is-only-a-prefix-of-the-name"),
        pytest.param("../OWN/x", "write", id="other-case"),
        pytest.param("~/x", "write", id="home"),
        pytest.param("~root/x", "write", id="home-of-another"),
        pytest.param("~no-such-user-here/x", "write", id="home-of-nobody"),
        pytest.param("a\0b", "write", id="nul"),
        pytest.param("", "write", id="empty"),
        pytest.param("ring", "write", id="ring"),
        pytest.param("ring/../out/key", "read", id="link-hidden-behind-a-ring"),
        pytest.param("a\ud800", "write", id="no-file-name"),
        pytest.param(".git/config", "write", id="git-config"),
        pytest.param("sub/.GIT/hooks/pre-commit", "write", id="git-hook-other-case"),
        pytest.param(".git", "write", id="git-file"),
    ],
)
def test_a_place_outside_is_refused(place: Path, path: str, mode: str) -> None:
    with pytest.raises(ToolError):
        fence(roots(place), path, mode, place / "own")


def test_the_refusal_of_a_write_names_the_path_as_it_was_given(place: Path) -> None:
    with pytest.raises(ToolError, match=r"^'/etc/hosts' is not in a writable directory\."):
        fence(roots(place), "/etc/hosts", "write", place / "own")


def test_a_second_writable_root_is_accepted(place: Path) -> None:
    both = (*roots(place), Root(path=place / "secret", writable=True))
    assert fence(both, "../secret/new", "write", place / "own") == place / "secret/new"
    assert not is_own(both, place / "secret/new")


def test_a_root_that_is_a_link_holds_what_it_points_to(place: Path) -> None:
    (place / "alias").symlink_to("own")
    alias = (Root(path=place / "alias", writable=True),)
    assert fence(alias, "x", "write", place / "alias") == place / "own/x"


def test_home_is_expanded(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(place / "own"))
    assert fence(roots(place), "~/x", "write", place / "seen") == place / "own/x"


def test_without_roots_nothing_is_inside(place: Path) -> None:
    with pytest.raises(ToolError):
        fence((), "x", "read", place / "own")


NAMES = ("a", "b", "c")
PIECES = st.sampled_from([*NAMES, "..", ".", "", "~", "/", "x", "own", "secret"])
LINKS = st.lists(
    st.tuples(
        st.sampled_from(["own/a", "own/b", "own/c", "own/d/a", "secret/a"]),
        st.lists(PIECES, min_size=1, max_size=4).map("/".join).filter(bool),
    ),
    max_size=5,
)


def build(base: Path, links: list[tuple[str, str]]) -> Path:
    for folder in ("own/d", "secret/d"):
        (base / folder).mkdir(parents=True)
    for link, target in links:
        if not os.path.lexists(base / link):
            (base / link).symlink_to(target)
    return base / "own"


@settings(max_examples=300, deadline=None)
@given(links=LINKS, path=st.lists(PIECES, min_size=1, max_size=6).map("/".join))
def test_no_path_through_any_tree_of_links_escapes(links: list[tuple[str, str]], path: str) -> None:
    with TemporaryDirectory() as folder:
        base = Path(os.path.realpath(folder))
        own = build(base, links)
        try:
            real = fence((Root(path=own, writable=True),), path, "write", own)
        except ToolError:
            return
        assert not real.is_symlink()
        try:
            real.parent.mkdir(parents=True, exist_ok=True)
            real.touch()
        except OSError:
            return
        assert Path(os.path.realpath(real)).is_relative_to(own)
        assert not (base / "secret/x").exists()


@given(st.text(max_size=30))
def test_no_text_at_all_escapes(path: str) -> None:
    own = Path(os.path.realpath("/usr"))
    try:
        real = fence((Root(path=own),), path, "read", own)
    except ToolError:
        return
    assert Path(os.path.realpath(real)).is_relative_to(own)
