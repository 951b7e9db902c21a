"""What is sent to GitHub fits the description of its API that GitHub publishes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from engine.store.base import Store
from tests.fakes.vendors import github
from tests.fakes.vendors.cases import Case
from tests.fakes.vendors.desk import opened
from tests.fakes.vendors.service import Seen

#: Cut from the whole to the requests that are made; says from which version.
DESCRIPTION = Path(github.__file__).with_name("github_description.json")
REQUESTS: Mapping[str, Any] = json.loads(DESCRIPTION.read_text(encoding="utf-8"))["requests"]


def described(seen: Seen) -> Mapping[str, Any]:
    """Return what the description says of the request; the one with the fewest gaps fits."""
    for line in sorted(REQUESTS, key=lambda each: each.count("{")):
        method, path = line.split()
        shape = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path)).replace(
            "contents/[^/]+", "contents/.+"
        )
        if method == seen.method and re.fullmatch(shape, seen.path):
            found: Mapping[str, Any] = REQUESTS[line]
            return found
    raise AssertionError(f"GitHub describes no {seen.method} {seen.path}")


def typed(schema: Mapping[str, Any], text: str) -> Any:
    """Return the text of a query as the type it stands for."""
    whole = schema.get("type") == "integer" and text.isdigit()
    return int(text) if whole else text


def faults(seen: Seen) -> list[str]:
    """Return what GitHub would not understand of the request."""
    said = described(seen)
    found = [f"needs {name}" for name in said.get("needed", ()) if name not in seen.query]
    for name, text in seen.query.items():
        schema = said["query"].get(name, False)
        value = typed(schema, text) if schema else text
        found += [f"{name}: {error.message}" for error in _errors(schema, value)]
    if seen.body:
        schema = said["body"]
        found += [error.message for error in _errors(schema, seen.json)]
        found += [f"knows no {name}" for name in seen.json.keys() - schema["properties"].keys()]
    return found


def _errors(schema: Any, value: Any) -> list[Any]:
    return list(Draft202012Validator(schema).iter_errors(value))


@pytest.mark.parametrize("case", [*github.READS, *github.ACTS], ids=str)
async def test_every_request_is_one_that_github_describes(
    case: Case, sqlite_store: Store, tmp_path: Path
) -> None:
    """Those of the call, of its preview, and of its look-up."""
    async with (
        github.Fake() as service,
        opened("github", service, sqlite_store, tmp_path) as desk,
    ):
        await desk.connectors.identity(await desk.connect())
        tool = desk.tool(case.tool)
        arguments = tool.check(case.arguments)
        witness = await tool.witness(desk.ctx, arguments) if tool.witness else None
        if tool.preview is not None:
            await tool.preview(desk.ctx, arguments)
        await desk.call(case.tool, case.arguments)
        if tool.look_up is not None:
            await tool.look_up(desk.ctx, arguments, witness)
    assert {seen.path for seen in service.seen} > {"/user"}
    assert [fault for seen in service.seen for fault in faults(seen)] == []


@pytest.mark.parametrize(
    ("method", "path", "query", "body"),
    [
        ("GET", "/repos/a/b/issues", {"per_page": "many"}, None),
        ("GET", "/repos/a/b/issues", {"state": "ajar"}, None),
        ("GET", "/repos/a/b/issues", {"page_size": "9"}, None),
        ("GET", "/search/issues", {}, None),
        ("POST", "/repos/a/b/issues", {}, {"body": "without a title"}),
        ("POST", "/repos/a/b/issues", {}, {"title": "x", "colour": "red"}),
    ],
)
def test_what_github_does_not_describe_is_noticed(
    method: str, path: str, query: dict[str, str], body: Any
) -> None:
    data = json.dumps(body).encode() if body else b""
    seen = Seen(method=method, path=path, query=query, headers={}, body=data, peer=0)
    assert len(faults(seen)) == 1
