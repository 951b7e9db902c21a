"""No secret of an app reaches a model, a card, a log, the store, a child, a page, or a backup.

A real `nod serve` with accounts of every kind and MCP servers, whose services say each request
again with all its headers: in answers, in refusals, in failures.
"""

from __future__ import annotations

import base64
import json
import re
import tarfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from engine.canonical import dumps
from tests.fakes.house import House, housed
from tests.fakes.llm import FakeLLM, Reply
from tests.fakes.mcp_http import HttpServer, served
from tests.fakes.mcp_server import command
from tests.fakes.slack import APP_TOKEN, FakeSlack
from tests.fakes.slack_state import Post
from tests.fakes.vendors import github, google_calendar, jira, linear, webhook
from tests.fakes.vendors.service import Fault, Service

#: What is planted, by what it opens.
CANARY = {
    name: f"{name}-canary-0123456789abcdef"
    for name in (
        "github",
        "github-refresh",
        "calendar",
        "calendar-refresh",
        "jira",
        "linear",
        "signing",
        "client",
        "board",
        "far",
    )
}
HOOK_PATH = "services/T0/B0/hook-canary-0123456789"
EMAIL = "ana@acme.example"
#: As a header of Basic holds it.
PAIR = base64.b64encode(f"{EMAIL}:{CANARY['jira']}".encode()).decode()
SECRETS = [*CANARY.values(), HOOK_PATH, PAIR, "xoxb-", "xapp-"]

VENDORS: dict[str, type[Service]] = {
    "github": github.Fake,
    "google_calendar": google_calendar.Fake,
    "jira": jira.Fake,
    "linear": linear.Fake,
}


class Hook(webhook.Fake):
    """A receiver whose address is the secret, and which says it again."""

    def routes(self) -> None:
        self.on("POST", f"/{HOOK_PATH}", self._take, open=True)


@dataclass(slots=True)
class Scene:
    """Nod, where it is met, and what it works with."""

    house: House
    slack: FakeSlack
    model: FakeLLM
    apps: dict[str, Service]
    far: HttpServer

    def posts(self) -> list[Post]:
        return self.slack.direct("T1", "UANA").of_nod

    def card(self, label: str) -> Post | None:
        """Return the last card that has this button."""
        held = (each for each in self.posts()[::-1] if label in str(each.blocks))
        return next((each for each in held if each.buttons()), None)

    async def said(self, words: str) -> None:
        """Wait until Nod has said it."""
        await self.slack.until(lambda: words in everything(self.posts()), 40)


def everything(posts: list[Post]) -> str:
    return json.dumps([[each.text, each.blocks] for each in posts], ensure_ascii=False)


@asynccontextmanager
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        slack = await stack.enter_async_context(FakeSlack())
        apps = {
            name: await stack.enter_async_context(fake())
            for name, fake in {**VENDORS, "webhook": Hook}.items()
        }
        far = await stack.enter_async_context(served())
        environ = {
            "NOD_SLACK_BASE_URL": slack.base_url,
            "SLACK_BOT_TOKEN": slack.teams["T1"].token,
            "SLACK_APP_TOKEN": APP_TOKEN,
            "NOD_LOG_LEVEL": "debug",
            "NOD_WEB_PORT": "0",
        }
        house, model = await stack.enter_async_context(housed(tmp_path, environ, SECRETS))
        _write_settings(house, apps, far)
        await _plant(house, apps, far)
        yield Scene(house, slack, model, apps, far)


def _write_settings(house: House, apps: dict[str, Service], far: HttpServer) -> None:
    program, *args = command()
    tables = [f'[connectors.{name}]\nbase_url = "{apps[name].url}"' for name in VENDORS]
    tables.append(f'[connectors.webhook]\nbase_url = "{apps["webhook"].url}/{HOOK_PATH}"')
    tables.append(
        f'[mcp.board]\ncommand = {dumps(program)}\nargs = {dumps(args)}\nread = ["*"]\n'
        'env = ["BOARD_TOKEN"]'
    )
    tables.append(
        f'[mcp.far]\nurl = "{far.url}"\nread = ["*"]\n'
        'headers = { Authorization = "Bearer {FAR_TOKEN}" }'
    )
    house.data.mkdir(exist_ok=True)
    (house.data / "nod.toml").write_text("\n\n".join(tables), encoding="utf-8")


async def _plant(house: House, apps: dict[str, Service], far: HttpServer) -> None:
    """Put the secrets into the vault, and let the services take them."""
    apps["github"].tokens = {CANARY["github"]: "ana"}
    apps["google_calendar"].tokens = {CANARY["calendar"]: "ana"}
    apps["jira"].tokens = {CANARY["jira"]: "ana"}
    apps["linear"].tokens = {CANARY["linear"]: "ana"}
    far.token = f"Bearer {CANARY['far']}"
    await house.connect("github", "ana", CANARY["github"], refresh=CANARY["github-refresh"])
    await house.connect(
        "google_calendar", EMAIL, CANARY["calendar"], refresh=CANARY["calendar-refresh"]
    )
    forms = {
        "jira": {"site": "acme", "email": EMAIL, "token": CANARY["jira"]},
        "linear": {"token": CANARY["linear"]},
        "webhook": {
            "name": "ana",
            "url": f"{apps['webhook'].url}/{HOOK_PATH}",
            "secret": CANARY["signing"],
        },
    }
    for name, fields in forms.items():
        await house.connect(name, "ana", fields=fields)
    house.keep("GITHUB_CLIENT_ID", "nod")
    house.keep("GITHUB_CLIENT_SECRET", CANARY["client"])
    house.keep("BOARD_TOKEN", CANARY["board"])
    house.keep("FAR_TOKEN", CANARY["far"])


def calls(*made: tuple[str, dict[str, Any]]) -> Reply:
    return Reply(calls=tuple((name, json.dumps(arguments)) for name, arguments in made))


READS = (
    ("github_list_issues", {"repo": "acme/app"}),
    ("google_calendar_events", {"day": "2026-03-02", "zone": "Europe/Berlin"}),
    ("jira_search", {"jql": "project = OPS"}),
    ("linear_search", {"words": "crash"}),
)
#: Asked about once outside text is in play, so they come first.
SERVERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("mcp_board_environment", {}),
    ("mcp_far_add", {"a": 1, "b": 2}),
)


def _echo(it: Scene, status: int) -> None:
    for app in it.apps.values():
        app.faults = [Fault(status=status, how="echo")] * 4
    it.far.faults = ["echo"]


def held(text: str | bytes) -> list[str]:
    """Return the secrets in a text."""
    plain = text if isinstance(text, str) else text.decode("latin-1")
    return [secret for secret in SECRETS if secret in plain]


async def _at_work(it: Scene) -> None:
    """Have everything asked, refused, failed, and said again."""
    for status in (200, 403, 500):
        asked = READS if it.model.seen else (*READS, *SERVERS)
        it.model.replies = [calls(*asked), Reply(text=f"That was {status}.")]
        _echo(it, status)
        await it.slack.direct_say(f"Look at it ({status}).")
        await it.said(f"That was {status}.")
        assert "[secret]" in str(it.model.seen[-1].body["messages"]), status


@pytest.mark.timeout(150)  # a real process, and reads that are tried four times
async def test_no_secret_of_an_app_is_anywhere(tmp_path: Path) -> None:
    async with scene(tmp_path) as it:
        await it.house.start()
        await it.slack.connected(1)
        await it.slack.direct_say(await it.house.pairing_code())
        await it.slack.until(lambda: it.slack.whispers)
        await _at_work(it)

        # a card with a request to a secret address that says it again, and a child's environment
        _echo(it, 403)
        shown = await _approved(it, "webhook_send", payload={"a": 1})
        assert "/[secret]" in shown, "the card shows the request"
        shown += await _approved(it, "run_shell", command="env")
        assert "NOD_PROCESS" in str(it.model.seen[-1].body["messages"])
        shown += await _refused(it) + await _page(it)
        _children(it)
        for words in ("backup " + str(tmp_path / "kept.tar.gz"), "inbox", "doctor", "secrets list"):
            shown += await it.house.run(*words.split())
        await it.house.check()
        await it.house.kill()

        assert held(shown + everything(it.posts())) == [], "cards and pages"
        assert held(str([seen.body for seen in it.model.seen])) == [], "what the model was sent"
        for file in it.house.data.rglob("*"):
            if file.is_file() and file.name != "nod.toml":  # where the test put the address
                assert held(file.read_bytes()) == [], file
        with tarfile.open(tmp_path / "kept.tar.gz") as archive:
            names = archive.getnames()
            for name in (each for each in names if not each.endswith("nod.toml")):
                member = archive.extractfile(name)
                assert member is None or held(member.read()) == [], name
        assert any("nod.db" in name for name in names)


async def _refused(it: Scene) -> str:
    """Have a key refused, with the key in the answer, and return the card that asks for another."""
    it.apps["linear"].faults = [Fault(status=401, how="echo")] * 4
    it.model.replies = [calls(("linear_search", {"words": "crash"}))]
    await it.slack.direct_say("Search once more.")
    await it.slack.until(lambda: it.card("Not now"), 20)
    card = it.card("Not now")
    assert card is not None
    return everything([card])


async def _page(it: Scene) -> str:
    """Type a key that its service refuses, and says again; return every page that was shown."""
    link = re.search(r"http://\S+/connect/\S+", await it.house.run("connect", "linear"))
    assert link is not None
    it.apps["linear"].faults = [Fault(status=403, how="echo")] * 4
    async with aiohttp.ClientSession() as browser:
        async with browser.get(link[0]) as answer:
            first = await answer.text()
        typed = {"way": "key", "token": CANARY["linear"]}
        async with browser.post(link[0], data=typed) as answer:
            return first + await answer.text()


def _children(it: Scene) -> None:
    """Of all that Nod started, only the server a secret is for has it, and none shows it."""
    assert it.house.pid is not None
    children = psutil.Process(it.house.pid).children(recursive=True)
    assert children, "the MCP server is one"
    for child in children:
        assert held(" ".join(child.cmdline())) == []
        assert set(held(str(child.environ()))) <= {CANARY["board"]}


async def _approved(it: Scene, tool: str, **arguments: Any) -> str:
    """Have the model call the tool, and a person approve it; returns what the card showed."""
    it.model.replies = [calls((tool, arguments)), Reply(text=f"{tool} was tried.")]
    await it.slack.direct_say(f"Try {tool}.")
    await it.slack.until(lambda: it.card("Approve"), 20)
    card = it.card("Approve")
    assert card is not None
    shown = everything([card])
    await it.slack.press("Approve", card)
    await it.said(f"{tool} was tried.")
    return shown
