"""A connector told from its declarations: the page of its docs, and the skeleton of a new one."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import resources

from connectors.base import Auth, Connector, Key, OAuth
from connectors.declaring import Declaration
from connectors.registry import CONNECTORS, load
from engine.errors import NodError
from engine.tools.base import Risk

__all__ = ["page", "skeleton"]


def page(name: str) -> str:
    """Return the connector's page in Markdown; blocking, raises NodError for a name nobody knows.

    It tells how it is connected, what it may be asked, and of each tool what it does to the world.
    """
    connector = load(name)
    return "\n".join(_lines(connector)) + "\n"


def _lines(connector: Connector) -> Iterator[str]:
    yield f"# {CONNECTORS[connector.name].title}"
    yield from ("", connector.about, "")
    yield f"Its API: <{connector.docs}>. At most {connector.limits.per_minute:g} requests a minute"
    yield f"and account, {connector.limits.at_once} at once, {connector.limits.seconds:g} s each."
    yield from ("", "## Connecting", "")
    for each in connector.auth:
        yield from _way(each)
    yield from ("", "## Tools", "", "| tool | | reaches | after a crash |", "|---|---|---|---|")
    for declaration in connector.declared:
        yield _row(connector, declaration)
    yield ""
    for declaration in connector.declared:
        yield from _told(connector, declaration)
    if connector.sources:
        yield from (
            "## Events",
            "",
            "In sessions of the person who connected it, while one waits.",
            "",
        )
    for source in connector.sources:
        text = (inspect.getdoc(source.poll) or "").partition("\n\n")[0]
        yield f"- `{connector.name}-{source.name}`: {text} Looked at every {source.every:g} s."


def _way(auth: Auth) -> Iterator[str]:
    if isinstance(auth, OAuth):
        yield f"- **Sign-in at the service.** Scopes: {', '.join(auth.scopes) or 'none'}."
        ours = f"`{auth.client}_CLIENT_ID` and `{auth.client}_CLIENT_SECRET`"
        yield f"  Nod's own registration there: {ours}."
    elif isinstance(auth, Key):
        yield "- **A form:**"
        for each in auth.fields:
            optional = " (may be left empty)" if each.optional else ""
            yield f"  - {each.title}{optional}. {each.hint}".rstrip()
    else:
        yield "- Needs no account."


_RISKS = {
    Risk.READ: "reads",
    Risk.WRITE_LOCAL: "saves a file here",
    Risk.EXTERNAL: "**others see it: asks**",
}


def _row(connector: Connector, declaration: Declaration) -> str:
    options = declaration.options
    risk = options["risk"]
    if risk is not Risk.EXTERNAL:
        return f"| `{_name(connector, declaration)}` | {_RISKS[risk]} | | |"
    after = "a person is asked"
    if options.get("idempotent"):
        after = "is done again, which changes nothing"
    elif options.get("look_up"):
        after = "is looked up"
    return f"| `{_name(connector, declaration)}` | {_RISKS[risk]} | exactly its target | {after} |"


def _name(connector: Connector, declaration: Declaration) -> str:
    return f"{connector.name}_{declaration.run.__name__}"


def _told(connector: Connector, declaration: Declaration) -> Iterator[str]:
    text = inspect.getdoc(declaration.run) or ""
    what, _, arguments = text.partition("\n\nArgs:\n")
    yield from (f"### {_name(connector, declaration)}", "", what, "")
    for line in arguments.splitlines():
        argument = re.match(r"    (\w+): (.*)", line)
        yield f"- `{argument[1]}`: {argument[2]}" if argument else f"  {line.strip()}"
    if arguments:
        yield ""


def skeleton(name: str, title: str) -> dict[str, str]:
    """Return the files of a new connector, path -> text: module, vendor's server for its tests.

    Raises NodError for a name that is taken, or none.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]{1,30}", name):
        raise NodError(
            f"'{name}' cannot be a connector's name.", "Use 2 to 31 lower-case letters and digits."
        )
    if name in CONNECTORS:
        raise NodError(f"There is a connector '{name}' already.", "Choose another name.")
    folder = resources.files("connectors").joinpath("samples")
    made = {}
    for sample, path in (
        ("connector.py.txt", f"connectors/{name}.py"),
        ("vendor.py.txt", f"tests/fakes/vendors/{name}.py"),
    ):
        text = folder.joinpath(sample).read_text(encoding="utf-8")
        made[path] = text.replace("{name}", name).replace("{title}", title)
    return made
