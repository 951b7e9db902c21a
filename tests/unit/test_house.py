"""The house rules, held over the syntax tree; each offence says what to do about it.

Every rule is also shown a small offender, so that a rule which finds nothing any more is noticed.
What ruff and import-linter hold is not repeated here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

import pytest

from bot.surfaces.table import PLATFORMS
from engine.store.base import load_migrations, load_queries
from tests.unit.house import Module, modules

Rule = Callable[[Module], Iterator[str]]

MODULE_LINES, FUNCTION_LINES, PUBLIC_METHODS = 600, 80, 15

#: Where the time is read; everything else is handed `now`.
CLOCK = "engine.clock"


def short_module(module: Module) -> Iterator[str]:
    lines = len(module.text.splitlines())
    if lines > MODULE_LINES:
        yield f"{module.name} has {lines} lines: split it by what it does ({MODULE_LINES} at most)"


def short_functions(module: Module) -> Iterator[str]:
    for node in _functions(module):
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > FUNCTION_LINES:
            yield (
                f"{module.at(node)}: {node.name} has {lines} lines: take its steps out "
                f"({FUNCTION_LINES} at most)"
            )


def narrow_classes(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef):
            public = [
                each.name
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
                and not each.name.startswith("_")
            ]
            if len(public) > PUBLIC_METHODS:
                yield (
                    f"{module.at(node)}: {node.name} has {len(public)} public methods: "
                    f"it is more than one thing ({PUBLIC_METHODS} at most)"
                )


def opening_sentence(module: Module) -> Iterator[str]:
    first = (ast.get_docstring(module.tree) or "").split("\n\n")[0].strip()
    if not first.endswith((".", ":", ".)")):
        yield f"{module.name} must open with a docstring: one sentence that tells its one job"


def future_annotations(module: Module) -> Iterator[str]:
    if len(module.tree.body) == 1 and ast.get_docstring(module.tree):
        return
    for node in module.tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            return
    yield f"{module.name}: add `from __future__ import annotations` under the docstring"


def nothing_unfinished(module: Module) -> Iterator[str]:
    for number, line in enumerate(module.text.splitlines(), 1):
        if found := re.search(r"\b(NotImplementedError|TODO|FIXME|XXX|HACK)\b", line):
            yield f"{module.name}, line {number}: {found[1]}: finish it or take it out"


def telling_names(module: Module) -> Iterator[str]:
    classes = [node.name for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)]
    for name in [*module.name.split("."), *classes]:
        if found := re.search(r"manager|helper|utils?(?![a-z])|misc(?![a-z])", name, re.I):
            yield f"{module.name}: '{found[0]}' in {name} says nothing: name what it does"


def broad_handlers_with_reason(module: Module) -> Iterator[str]:
    lines = module.text.splitlines()
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ExceptHandler) or not _is_broad(node):
            continue
        last = node.body[-1]
        raises = isinstance(last, ast.Raise) and last.exc is None
        if not raises and not re.search(r"# broad: \S", lines[node.lineno - 1]):
            yield (
                f"{module.at(node)}: name the error, let it rise, or say `# broad: <reason>` "
                "where it is a border"
            )


def owned_tasks(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
            continue
        made = node.value.func
        name = made.attr if isinstance(made, ast.Attribute) else getattr(made, "id", "")
        owner = ast.unparse(made).rpartition(".")[0]
        if name in ("create_task", "ensure_future") and not owner.endswith("group"):
            yield f"{module.at(node)}: nobody waits for this task: keep it, or use a TaskGroup"


def true_exports(module: Module) -> Iterator[str]:
    named = {"__doc__"}
    for node in module.tree.body:
        for inner in ast.walk(node):
            if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                named.add(inner.name)
            elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                named.add(inner.id)
            elif isinstance(inner, ast.alias):
                named.add(inner.asname or inner.name)
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names = ast.literal_eval(node.value)
            for name in names:
                if name not in named or names.count(name) > 1:
                    yield f"{module.at(node)}: '{name}' in __all__ is not here, or stands twice"


def time_through_now(module: Module) -> Iterator[str]:
    if module.name == CLOCK:
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and re.fullmatch(
            r"time\.time(_ns)?|(datetime\.)?datetime\.(now|utcnow|today)|(datetime\.)?date\.today",
            ast.unparse(node.func),
        ):
            yield f"{module.at(node)}: take the time from the `now` that is handed in"


def no_history_in_words(module: Module) -> Iterator[str]:
    """Tickets, days and ids of reports belong to the version control, reasons into the code."""
    words = [
        (node.lineno, ast.get_docstring(node) or "")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]
    words.append((1, ast.get_docstring(module.tree) or ""))
    for number, line in enumerate(module.text.splitlines(), 1):
        words.append((number, line.partition("# ")[2]))
    for number, text in words:
        if found := re.search(r"(?<![\w-])[A-Z]-\d\d\b|(?<![\w&#/])#\d+\b", text):
            yield f"{module.name}, line {number}: '{found[0]}': say the reason in words"


def one_sleep_owner(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.AsyncFunctionDef):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Call) and ast.unparse(inner.func) == "time.sleep":
                    yield f"{module.at(inner)}: this stops the event loop: asyncio.sleep"


def _functions(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _is_broad(handler: ast.ExceptHandler) -> bool:
    caught = handler.type
    kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(
        kind is None or ast.unparse(kind) in ("Exception", "BaseException") for kind in kinds
    )


#: Each rule with a module that breaks it, and one that just does not.
RULES: dict[Rule, tuple[str, str]] = {
    short_module: ("x = 1\n" * 601, "x = 1\n" * 600),
    short_functions: ("def f():\n" + "    x = 1\n" * 80, "def f():\n" + "    x = 1\n" * 79),
    narrow_classes: (
        "class C:\n" + "".join(f"    def m{n}(self): ...\n" for n in range(16)),
        "class C:\n" + "".join(f"    def m{n}(self): ...\n" for n in range(15)),
    ),
    opening_sentence: ("x = 1", '"""Counts sheep.\n\nAnd more\n"""'),
    future_annotations: ("import os", "from __future__ import annotations"),
    nothing_unfinished: ("x = 1  # TODO: two", "todo = 1"),
    telling_names: ("class TaskManager: ...", "class Miscible: ..."),
    broad_handlers_with_reason: (
        "try:\n    f()\nexcept (OSError, Exception):\n    pass",
        "try:\n    f()\nexcept BaseException:\n    g()\n    raise",
    ),
    owned_tasks: ("asyncio.create_task(f())", "group.create_task(f())\nt = asyncio.create_task(f)"),
    true_exports: ('__all__ = ["a", "b"]\na = 1', '__all__ = ["a"]\na = 1'),
    time_through_now: ("x = time.time()", "x = time.monotonic()\ny = now()"),
    no_history_in_words: ("x = 1  # see #12", "x = 'A-01'  # SHA-256, UTF-8, slot 3"),
    one_sleep_owner: ("async def f():\n    time.sleep(1)", "def f():\n    time.sleep(1)"),
}

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)


@each_rule
def test_the_house_keeps_the_rule(rule: Rule) -> None:
    offences = [offence for module in modules() for offence in rule(module)]
    assert not offences, "\n".join(["", *offences])


@each_rule
def test_the_rule_finds_an_offender_and_spares_the_rest(rule: Rule) -> None:
    bad, good = RULES[rule]
    assert list(rule(Module.of("engine.offender", bad)))
    assert not list(rule(Module.of("engine.good", good)))


# -- what nobody uses


def _mentioned() -> set[str]:
    """Return every name that code reads, as `name`, or as `module.name`."""
    found = set()
    for module in modules():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found |= {node.attr, ast.unparse(node)}
    return found


def _assembled(name: str) -> bool:
    """Tell whether a module is no part of a platform whose surface is still to be written."""
    found = re.fullmatch(r"bot\.(?:surfaces|render)\.(\w+?)(?:_\w+)?", name)
    names = {module.name for module in modules()}
    return not found or found[1] not in PLATFORMS or PLATFORMS[found[1]].module in names


def test_no_function_is_there_for_nobody() -> None:
    mentioned = _mentioned()
    unused = {
        f"{module.name}.{node.name}"
        for module in modules()
        if _assembled(module.name)
        for node in module.tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.decorator_list
        and node.name not in mentioned
    }
    assert not unused, f"call it or take it out: {unused}"


# -- queries and tables


def _called(module: Module) -> Iterator[tuple[ast.AST, ast.expr]]:
    """Yield the first argument of every call that runs a named query."""
    for node in ast.walk(module.tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("all", "one", "run", "many")
            and ast.unparse(node.func.value).split(".")[-1].strip("_") == "tx"
            and node.args
        ):
            yield node, node.args[0]


def _patterns(query: ast.expr) -> Iterator[str]:
    """Yield regular expressions for the names an argument can stand for."""
    if isinstance(query, ast.Constant) and isinstance(query.value, str):
        yield re.escape(query.value)
    elif isinstance(query, ast.IfExp):
        yield from _patterns(query.body)
        yield from _patterns(query.orelse)
    elif isinstance(query, ast.JoinedStr):
        parts = [
            re.escape(str(part.value)) if isinstance(part, ast.Constant) else r"\w+"
            for part in query.values
        ]
        yield "".join(parts)


def test_every_query_has_a_form_in_both_dialects() -> None:
    sqlite, postgres = set(load_queries("sqlite")), set(load_queries("postgres"))
    lonely = sorted(sqlite ^ postgres)
    assert not lonely, f"write the other dialect's form of: {', '.join(lonely)}"


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_every_query_that_is_run_exists(dialect: str) -> None:
    known = load_queries(dialect)
    missing = [
        f"{module.at(node)}: no query fits {pattern}"
        for module in modules()
        for node, query in _called(module)
        for pattern in _patterns(query)
        if not any(re.fullmatch(pattern, name) for name in known)
    ]
    assert not missing, "\n".join(["", *missing])


def test_every_query_is_run_somewhere() -> None:
    literals: set[str] = set()
    patterns: set[str] = set()
    for module in modules():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                literals.add(node.value)
        for _, query in _called(module):
            patterns |= set(_patterns(query))
    unused = [
        name
        for name in load_queries("sqlite")
        if name not in literals and not any(re.fullmatch(each, name) for each in patterns)
    ]
    assert not unused, f"nobody runs these queries: take them out: {', '.join(unused)}"


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_every_table_belongs_to_a_tenant(dialect: str) -> None:
    statements = [s for _, _, found in load_migrations(dialect) for s in found]
    tables = [s for s in statements if s.lower().startswith("create table")]
    assert tables
    homeless = [s.split("(")[0] for s in tables if "tenant_id text not null" not in s]
    assert not homeless, f"add `tenant_id text not null` to: {', '.join(homeless)}"
