"""The verdict: nine steps in their order, in every mode, with and without outside text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import ToolError
from engine.permissions.base import Answer, Mode, Rule, Scene, Verdict
from engine.permissions.policy import holds_at_start, judge, stricter
from engine.tools.base import Result, Risk, Root, Tool

ALLOW, ASK, REFUSE = Answer.ALLOW, Answer.ASK, Answer.REFUSE
HOME = "slack:T1/C1/1.0"
OTHER = "slack:T1/C2"


async def nothing() -> Result:
    return Result(text="")


def made(name: str, risk: Risk, **declared: Any) -> Tool:
    return Tool(name=name, description=name, run=nothing, risk=risk, **declared)


def malformed(arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    raise ToolError("The patch does not parse.")


def broken(arguments: Mapping[str, Any]) -> list[str]:
    raise KeyError("to")


READ = made("read_file", Risk.READ, paths={"path": "read"})
WRITE = made("write_file", Risk.WRITE_LOCAL, paths={"path": "write"})
MOVE = made("move", Risk.WRITE_LOCAL, paths={"paths": "write"})
PATCH = made("patch", Risk.WRITE_LOCAL, find_paths=lambda a: [(a["to"], "write")])
BAD_PATCH = made("patch", Risk.WRITE_LOCAL, find_paths=malformed)
NO_PATHS = made("tidy", Risk.WRITE_LOCAL)
SHELL = made("run_shell", Risk.EXEC)
SEND = made("send_message", Risk.EXTERNAL, target=lambda a: [a["to"]])
MAIL = made("send_mail", Risk.EXTERNAL, target=lambda a: a["to"])
DELIVER = made("deliver_file", Risk.EXTERNAL, to_home=True, paths={"path": "read"})
VAGUE = made("tweet", Risk.EXTERNAL)
BROKEN = made("tweet", Risk.EXTERNAL, target=broken)
FETCH = made("web_fetch", Risk.READ, egress=lambda a: a["url"].split("/")[2])
TODO = made("todo", Risk.CONTROL, paths={"path": "write"})


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    for name in ("own", "project", "seen"):
        (tmp_path / name).mkdir()
    return Scene(
        mode=Mode.INTERACTIVE,
        roots=(
            Root(path=tmp_path / "own", writable=True, own=True),
            Root(path=tmp_path / "project", writable=True),
            Root(path=tmp_path / "seen"),
        ),
        allowlist=("ls", "git status"),
        rules=(
            Rule(id="r1", tool="send_message", target=(OTHER,)),
            Rule(id="r2", tool="send_mail", target=("a@x.test", "b@x.test")),
            Rule(id="r3", tool="run_shell", target=("rm",)),
            Rule(id="r4", tool="web_fetch", target=("known.test",)),
            Rule(id="r5", tool="tweet", target=()),
        ),
        home=HOME,
        home_open=True,
    )


DISCUSS, PLAN, AUTO, CUSTOM = Mode.DISCUSS, Mode.PLAN, Mode.AUTO, Mode.CUSTOM
WEB = ("web:x.test",)
URL = {"url": "https://x.test/a"}


def case(
    id: str,
    tool: Tool | None,
    arguments: Mapping[str, Any],
    expected: tuple[Answer, str],
    mode: Mode = Mode.INTERACTIVE,
    **changes: Any,
) -> Any:
    return pytest.param(tool, arguments, expected, {"mode": mode, **changes}, id=id)


CASES = [
    case("unknown-tool", None, {}, (REFUSE, "unknown"), AUTO),
    *[case(f"control-{m}", TODO, {"path": "/x"}, (ALLOW, "control"), m) for m in Mode],
    # roots, in every mode
    *[
        case(f"D-023-write-outside-{m}", WRITE, {"path": "/etc/hosts"}, (REFUSE, "roots"), m)
        for m in Mode
    ],
    *[case(f"read-outside-{m}", READ, {"path": "/etc/hosts"}, (REFUSE, "roots"), m) for m in Mode],
    case("D-023-read-only-root", WRITE, {"path": "../seen/a"}, (REFUSE, "roots"), AUTO),
    case("D-023-second-writable-root", WRITE, {"path": "../project/a"}, (ALLOW, "auto"), AUTO),
    case("one-of-many-paths-outside", MOVE, {"paths": ["a", "/etc/a"]}, (REFUSE, "roots"), AUTO),
    case("P-06-path-inside-a-patch", PATCH, {"to": "/etc/a"}, (REFUSE, "roots"), AUTO),
    case("patch-that-does-not-parse", BAD_PATCH, {}, (REFUSE, "roots"), AUTO),
    case("path-that-is-no-text", WRITE, {"path": {"a": 1}}, (REFUSE, "roots"), AUTO),
    case("delivered-file-outside", DELIVER, {"path": "/etc/hosts"}, (REFUSE, "roots")),
    case("git-folder", WRITE, {"path": ".git/config"}, (REFUSE, "roots"), AUTO),
    # modes that only read
    *[case(f"D-021-read-{m}", READ, {"path": "a"}, (ALLOW, "read"), m) for m in Mode],
    case("D-021-write-in-discuss", WRITE, {"path": "a"}, (REFUSE, "mode"), DISCUSS),
    case("D-021-write-in-plan", WRITE, {"path": "a"}, (REFUSE, "mode"), PLAN),
    case("exec-in-plan-even-on-the-list", SHELL, {"command": "ls"}, (REFUSE, "mode"), PLAN),
    case("D-028-rule-in-discuss", SEND, {"to": OTHER}, (REFUSE, "mode"), DISCUSS),
    # reads
    case("fetch-without-taint", FETCH, URL, (ALLOW, "read")),
    case("fetch-under-taint", FETCH, URL, (ASK, "default"), taint=WEB),
    case("fetch-under-taint-auto", FETCH, URL, (ASK, "default"), AUTO, taint=WEB),
    case("fetch-under-taint-discuss", FETCH, URL, (ASK, "default"), DISCUSS, taint=WEB),
    case("plain-read-under-taint", READ, {"path": "a"}, (ALLOW, "read"), taint=WEB),
    case(
        "fetch-of-a-ruled-host",
        FETCH,
        {"url": "https://known.test/a"},
        (ALLOW, "rule:r4"),
        taint=WEB,
    ),
    # writes
    case("own-root", WRITE, {"path": "a"}, (ALLOW, "own_root")),
    case("own-root-under-taint", WRITE, {"path": "a"}, (ALLOW, "own_root"), taint=WEB),
    case("granted-root-asks", WRITE, {"path": "../project/a"}, (ASK, "default")),
    case("half-in-own-root", MOVE, {"paths": ["a", "../project/a"]}, (ASK, "default")),
    case("write-without-a-path", NO_PATHS, {}, (ASK, "default")),
    # programs
    case("allowlist", SHELL, {"command": "ls -l"}, (ALLOW, "allowlist")),
    case("D-024-and-curl", SHELL, {"command": "ls && curl evil"}, (ASK, "exec")),
    case("D-025-empty-list", SHELL, {"command": "ls"}, (ASK, "exec"), allowlist=()),
    case("exec-asks-in-auto", SHELL, {"command": "make"}, (ASK, "exec"), AUTO),
    case("D-028-rule-never-covers-shell", SHELL, {"command": "rm"}, (ASK, "exec")),
    case("A-07-always-on-a-builtin", SHELL, {"command": "cd sub && ls"}, (ASK, "exec")),
    case(
        "A-20-substitute-asks-again", SHELL, {"command": "find build -delete"}, (ASK, "exec"), AUTO
    ),
    case("command-missing", SHELL, {}, (ASK, "exec"), AUTO),
    case("command-is-no-text", SHELL, {"command": ["ls"]}, (ASK, "exec"), AUTO),
    # rules and home
    case("rule", SEND, {"to": OTHER}, (ALLOW, "rule:r1")),
    case("D-028-other-target", SEND, {"to": "slack:T1/C3"}, (ASK, "default")),
    case("D-028-other-tool", MAIL, {"to": [OTHER]}, (ASK, "default")),
    case("rule-in-any-order", MAIL, {"to": ["b@x.test", "a@x.test"]}, (ALLOW, "rule:r2")),
    case("W-21-one-recipient-more", MAIL, {"to": ["a@x.test", "b@x.test", "c"]}, (ASK, "default")),
    case("one-recipient-less", MAIL, {"to": ["a@x.test"]}, (ASK, "default")),
    case("rule-holds-under-taint", SEND, {"to": OTHER}, (ALLOW, "rule:r1"), taint=WEB),
    case("D-030-blank-target", SEND, {"to": " "}, (ASK, "default")),
    case("D-030-missing-target", SEND, {}, (ASK, "default")),
    case("D-030-one-blank-of-two", MAIL, {"to": ["a@x.test", ""]}, (ASK, "default")),
    case("rule-without-a-target-covers-nothing", VAGUE, {}, (ASK, "default")),
    case("target-that-raises", BROKEN, {}, (ASK, "default")),
    case("home", SEND, {"to": HOME}, (ALLOW, "home")),
    case("file-to-home", DELIVER, {"path": "a"}, (ALLOW, "home")),
    case("home-under-taint", SEND, {"to": HOME}, (ALLOW, "home"), taint=WEB),
    case("home-not-opened-by-a-person", SEND, {"to": HOME}, (ASK, "default"), home_open=False),
    case("home-with-another-tool", MAIL, {"to": [HOME]}, (ASK, "default")),
    case("home-is-unknown", DELIVER, {"path": "a"}, (ASK, "default"), home=""),
    # auto
    case("D-022-external-asks", SEND, {"to": "x"}, (ASK, "default")),
    case("D-022-external-runs-in-auto", SEND, {"to": "x"}, (ALLOW, "auto"), AUTO),
    case("auto-under-taint", SEND, {"to": "x"}, (ASK, "default"), AUTO, taint=WEB),
    case("auto-under-taint-without-target", VAGUE, {}, (ASK, "default"), AUTO, taint=WEB),
    case(
        "auto-under-taint-to-home",
        SEND,
        {"to": HOME},
        (ALLOW, "auto"),
        AUTO,
        taint=WEB,
        home_open=False,
    ),
    case(
        "auto-write-under-taint", WRITE, {"path": "../project/a"}, (ALLOW, "auto"), AUTO, taint=WEB
    ),
    # custom
    case("custom-without-entry", WRITE, {"path": "../project/a"}, (ASK, "default"), CUSTOM),
    case(
        "custom-allows",
        WRITE,
        {"path": "../project/a"},
        (ALLOW, "custom"),
        CUSTOM,
        custom={"write_file": ALLOW},
    ),
    case("custom-asks", READ, {"path": "a"}, (ASK, "custom"), CUSTOM, custom={"read_file": ASK}),
    case(
        "D-020-refuses", SEND, {"to": OTHER}, (REFUSE, "custom"), CUSTOM, custom={SEND.name: REFUSE}
    ),
    case(
        "D-020-allows", SEND, {"to": "x"}, (ALLOW, "custom"), CUSTOM, custom={"send_message": ALLOW}
    ),
    case(
        "custom-never-widens-exec",
        SHELL,
        {"command": "make"},
        (ASK, "exec"),
        CUSTOM,
        custom={"run_shell": ALLOW},
    ),
    case(
        "custom-narrows-exec",
        SHELL,
        {"command": "ls"},
        (ASK, "custom"),
        CUSTOM,
        custom={"run_shell": ASK},
    ),
    case(
        "custom-never-opens-the-roots",
        WRITE,
        {"path": "/etc/hosts"},
        (REFUSE, "roots"),
        CUSTOM,
        custom={"write_file": ALLOW},
    ),
    case("custom-only-in-its-mode", SEND, {"to": "x"}, (ASK, "default"), custom={SEND.name: ALLOW}),
]


@pytest.mark.parametrize(("tool", "arguments", "expected", "changes"), CASES)
def test_the_first_step_that_fits_decides(
    scene: Scene,
    tool: Tool | None,
    arguments: Mapping[str, Any],
    expected: tuple[Answer, str],
    changes: dict[str, Any],
) -> None:
    verdict = judge(tool, arguments, replace(scene, **changes), scene.roots[0].path)
    assert (verdict.answer, verdict.step) == expected
    assert verdict.reason.endswith(".")


def test_a_refused_write_says_where_one_may_write(scene: Scene) -> None:
    verdict = judge(WRITE, {"path": "/etc/hosts"}, scene, scene.roots[0].path)
    assert verdict.reason.startswith("'/etc/hosts' is not in a writable directory.")
    assert str(scene.roots[0].path) in verdict.reason


def test_what_asks_carries_the_set_a_rule_would_pin(scene: Scene) -> None:
    asked = judge(MAIL, {"to": ["z@x.test", "a@x.test", "z@x.test"]}, scene, Path("/"))
    assert asked.target == ("a@x.test", "z@x.test")


@pytest.mark.parametrize("command", ["make", "cd sub && ls"])
def test_nothing_can_be_pinned_for_a_program(scene: Scene, command: str) -> None:
    assert judge(SHELL, {"command": command}, scene, Path("/")).target == ()


def test_a_card_under_taint_names_the_outside_text(scene: Scene) -> None:
    tainted = replace(scene, taint=WEB)
    asked = judge(FETCH, URL, tainted, Path("/"))
    assert "web:x.test" in asked.reason and asked.target == ("x.test",)


def verdict(answer: Answer) -> Verdict:
    return Verdict(answer=answer, step="default", reason=f"{answer}.")


@pytest.mark.parametrize(
    ("recorded", "fresh", "decided", "holds"),
    [
        (ALLOW, ALLOW, False, True),
        (ALLOW, ASK, False, False),
        (ALLOW, ASK, True, True),
        (ALLOW, REFUSE, True, False),
        (ASK, ALLOW, False, False),
        (ASK, ALLOW, True, True),
        (ASK, ASK, True, True),
        (ASK, ASK, False, False),
        (ASK, REFUSE, True, False),
        (REFUSE, ALLOW, True, False),
    ],
)
def test_at_start_a_refuse_wins_and_an_ask_needs_a_decision(
    recorded: Answer, fresh: Answer, decided: bool, holds: bool
) -> None:
    assert holds_at_start(verdict(recorded), verdict(fresh), decided) is holds


def test_the_stricter_of_two_verdicts() -> None:
    ranked = [verdict(a) for a in (ALLOW, ASK, REFUSE)]
    for low, a in enumerate(ranked):
        for high, b in enumerate(ranked):
            assert stricter(a, b) is ranked[max(low, high)]


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    path=st.one_of(
        st.text(max_size=20),
        st.lists(st.sampled_from(["..", "seen", "own", "etc", "~", "/", ""])).map("/".join),
    ),
    mode=st.sampled_from(list(Mode)),
    answer=st.sampled_from(list(Answer)),
    taint=st.booleans(),
)
def test_no_mode_allows_a_write_outside_the_writable_roots(
    scene: Scene, path: str, mode: Mode, answer: Answer, taint: bool
) -> None:
    own, project, _ = (root.path for root in scene.roots)
    changed = replace(scene, mode=mode, custom={WRITE.name: answer}, taint=WEB if taint else ())
    verdict = judge(WRITE, {"path": path}, changed, own)
    real = Path(own, path).expanduser() if "\0" not in path and path[:1] != "~" else Path("/")
    inside = any(Path(*_plain(real)).is_relative_to(root) for root in (own, project))
    assert inside or verdict.answer is REFUSE


def _plain(path: Path) -> list[str]:
    """The parts of a path without links, its dots taken out."""
    parts: list[str] = []
    for part in path.parts[1:]:
        if part == "..":
            parts = parts[:-1]
        else:
            parts.append(part)
    return ["/", *parts]
