"""What may be written about an MCP server, and what is said where it may not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url

from connectors.mcp import oauth as mcp_oauth
from connectors.mcp.schemas import Unfit, clean
from connectors.mcp.servers import filled, read_server, secret_names
from connectors.mcp.tools import cautioned, tool_name, tools_of
from engine.errors import SettingsError, ToolError
from engine.models.schemas import resolve, wire_tools
from engine.tools.base import Result, Risk, Tool, ToolContext

STDIO = {"command": "npx", "args": ["-y", "some server"]}
HTTP = {"url": "https://mcp.example.org/mcp"}


def test_a_program_s_exact_command_is_shown() -> None:
    assert read_server("files", STDIO).where == "npx -y 'some server'"


def test_an_address_is_shown_without_what_could_be_a_secret() -> None:
    assert read_server("far", {"url": "https://mcp.example.org/mcp?key=1#x"}).where == (
        "https://mcp.example.org/mcp"
    )


def test_secrets_are_named_and_filled_in_late() -> None:
    server = read_server("far", {**HTTP, "headers": {"Authorization": "Bearer {FAR_TOKEN}"}})
    assert secret_names(server) == ["FAR_TOKEN"]
    assert filled(server.headers["Authorization"], {"FAR_TOKEN": "t1"}) == "Bearer t1"
    renamed = read_server("files", {**STDIO, "env": {"API_KEY": "FILES_KEY"}})
    assert secret_names(renamed) == ["FILES_KEY"]


@pytest.mark.parametrize(
    ("name", "table", "said"),
    [
        pytest.param("my_files", STDIO, "is no name", id="underscore"),
        pytest.param("x" * 25, STDIO, "is no name", id="long-name"),
        pytest.param("files", {}, "either 'command' or 'url'", id="neither"),
        pytest.param("files", {**STDIO, **HTTP}, "either 'command' or 'url'", id="both"),
        pytest.param("files", {**STDIO, "comand": "x"}, "no setting 'comand'", id="unknown"),
        pytest.param("files", {"command": "a\nb"}, "one line", id="two-lines"),
        pytest.param("files", {**STDIO, "timeout": 0}, "1 to 3600 seconds", id="timeout"),
        pytest.param("files", {**STDIO, "env": ["A=sk-1"]}, "never values", id="value-in-env"),
        pytest.param("files", {**STDIO, "headers": {}}, "", id="no-headers-is-fine"),
        pytest.param("far", {"url": "ftp://x"}, "must begin with https", id="scheme"),
        pytest.param("far", {"url": "https://a:b@x/"}, "holds a password", id="password"),
        pytest.param(
            "far", {**HTTP, "headers": {"X-Api-Key": "sk-1"}}, "holds a secret", id="secret-header"
        ),
        pytest.param(
            "far",
            {"url": "http://x.example/", "headers": {"A": "{T}"}},
            "over https only",
            id="plain-http",
        ),
        pytest.param("far", {**HTTP, "args": ["x"]}, "go with 'command'", id="args"),
        pytest.param("files", {**STDIO, "oauth": True}, "go with 'url'", id="oauth"),
        pytest.param("files", "npx", "must be a table", id="no-table"),
    ],
)
def test_what_is_wrong_is_said(name: str, table: Any, said: str) -> None:
    if not said:
        read_server(name, table)
        return
    with pytest.raises(SettingsError, match=said):
        read_server(name, table)


@pytest.mark.parametrize(
    ("own", "name"),
    [
        pytest.param("add", "mcp_s_add", id="plain"),
        pytest.param("get-now", "mcp_s_get-now", id="hyphen"),
        pytest.param("time.get-now", "mcp_s_time_get-now_", id="dot"),
        pytest.param("user/update", "mcp_s_user_update_", id="slash"),
        pytest.param("Create Share", "mcp_s_Create_Share_", id="space"),
        pytest.param("2fa_check", "mcp_s_2fa_check", id="digit"),
        pytest.param("ürün", "mcp_s__r_n_", id="letters-of-others"),
        pytest.param("x" * 80, "mcp_s_" + "x" * 49 + "_", id="long"),
    ],
)
def test_a_name_fits_every_provider(own: str, name: str) -> None:
    made = tool_name("s", own)
    assert made.startswith(name)
    assert len(made) <= 64
    [wired] = wire_tools([{"function": {"name": made, "parameters": {}}}], "gemini")
    assert wired["function"]["name"] == made


def test_names_that_would_meet_do_not() -> None:
    owns = ["a.b", "a/b", "a b", "a_b", "x" * 70 + "1", "x" * 70 + "2"]
    assert len({tool_name("s", own) for own in owns}) == len(owns)
    assert tool_name("a", "b_c") != tool_name("a-b", "c")


@pytest.mark.parametrize(
    ("said", "risk"),
    [
        pytest.param({}, Risk.READ, id="nothing"),
        pytest.param({"readOnlyHint": True}, Risk.READ, id="reads"),
        pytest.param({"readOnlyHint": False}, Risk.EXTERNAL, id="writes"),
        pytest.param({"destructiveHint": True}, Risk.EXTERNAL, id="destroys"),
    ],
)
def test_a_hint_of_the_server_only_adds_caution(said: dict[str, bool], risk: Risk) -> None:
    async def perform(ctx: ToolContext, own: str, arguments: Any, reads: bool) -> Result:
        return Result(text="")

    entry = {"name": "look", "inputSchema": {"type": "object"}, "annotations": said}
    trusted = read_server("s", {**STDIO, "read": ["look"]})
    assert tools_of(trusted, [entry], perform).tools[0].risk is risk
    asking = read_server("s", {**STDIO, "read": ["*"], "ask": ["lo*"]})
    assert tools_of(asking, [entry], perform).tools[0].risk is Risk.EXTERNAL
    plain = read_server("s", STDIO)
    assert tools_of(plain, [entry], perform).tools[0].risk is Risk.EXTERNAL
    assert cautioned(entry) is (risk is Risk.EXTERNAL)


def _takes(schema: Any) -> Tool:
    async def run(ctx: ToolContext, /, **arguments: Any) -> Result:
        return Result(text="")

    return Tool(name="t", description="", run=run, risk=Risk.READ, parameters=clean(schema))


def test_a_schema_is_what_the_model_is_shown() -> None:
    tool = _takes({"type": "object", "properties": {"x": {"type": "integer"}}})
    function = tool.schema()["function"]
    assert function["parameters"]["properties"] == {"x": {"type": "integer"}}


@pytest.mark.parametrize(
    ("schema", "given", "taken"),
    [
        pytest.param({"x": {"type": "string"}}, {"x": None}, {}, id="null-nobody-asked-for"),
        pytest.param({"x": {"type": ["string", "null"]}}, {"x": None}, {"x": None}, id="null"),
        pytest.param({}, {"y": 1}, {"y": 1}, id="more-than-named"),
    ],
)
def test_harmless_differences_are_taken(
    schema: dict[str, Any], given: dict[str, Any], taken: dict[str, Any]
) -> None:
    assert _takes({"type": "object", "properties": schema}).check(given) == taken


def test_a_fault_names_the_argument() -> None:
    schema = {
        "type": "object",
        "properties": {"to": {"type": "array", "items": {"type": "string"}}},
    }
    with pytest.raises(ToolError, match=r"Argument 'to\.1' of t is wrong: 5 is not of type"):
        _takes(schema).check({"to": ["a", 5]})


def test_a_property_may_be_called_like_a_keyword() -> None:
    schema = {"type": "object", "properties": {"pattern": {"type": "string"}, "format": {}}}
    assert clean(schema)["properties"].keys() == {"pattern", "format"}


def test_references_that_multiply_are_cut_off() -> None:
    defs = {
        f"n{n}": {"properties": {s: {"$ref": f"#/$defs/n{n + 1}"} for s in "abcdefgh"}}
        for n in range(20)
    }
    schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/n0"}}, "$defs": defs}
    with pytest.raises(Unfit):
        clean(schema)
    assert resolve(schema)["properties"]["x"]


@pytest.mark.parametrize(
    ("resource", "url", "fits"),
    [
        pytest.param("https://a.test/mcp", "https://a.test/mcp", True, id="itself"),
        pytest.param("https://a.test", "https://a.test/mcp", True, id="its-host"),
        pytest.param("https://A.test:443/mcp/", "https://a.test/mcp?x=1", True, id="spelling"),
        pytest.param("https://a.test/mcp", "https://a.test/mcp2", False, id="another-path"),
        pytest.param("https://a.test/mcp", "https://a.test", False, id="above-it"),
        pytest.param("https://a.test", "https://b.test", False, id="another-host"),
        pytest.param("https://a.test", "http://a.test", False, id="in-the-clear"),
        pytest.param("https://a.test", "https://a.test:8443", False, id="another-port"),
        pytest.param("https://a.test", "https://a.test.evil.test", False, id="longer-host"),
    ],
)
def test_a_sign_in_is_for_one_server(tmp_path: Path, resource: str, url: str, fits: bool) -> None:
    file = tmp_path / "far.oauth.json"
    known = {"authorize_url": "", "token_url": "", "revoke_url": "", "scopes": [], "redirect": ""}
    file.write_text(json.dumps({**known, "resource": resource, "client_auth": "", "own": True}))
    assert mcp_oauth.fits(file, read_server("far", {"url": url})) is fits
    asked = resource_url_from_server_url(url)
    assert fits or not check_resource_allowed(asked, resource), "what the SDK took still fits"
