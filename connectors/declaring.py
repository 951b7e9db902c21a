"""Turns a connector's declared function into a tool of the engine, bound to accounts and limits."""

from __future__ import annotations

import inspect
import logging
import typing
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from connectors.api import Api, Planned
from connectors.blot import blotted_in
from connectors.http import Request, ServiceRefused, Unreachable, Unsure
from engine.tools.base import Result, Risk, Tool, ToolContext

if TYPE_CHECKING:
    from connectors.base import Connector, Ground

__all__ = ["Declaration", "Declared", "Found", "Poll", "Source", "made", "understood"]

#: Characters of a request on the card of an act.
PREVIEW = 4_000
#: Seconds a service may still be at work on an act after its connection broke off.
SETTLE = 3.0

_log = logging.getLogger(__name__)

Declared = Callable[..., Awaitable[Result]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A function and what was declared beside it."""

    run: Declared
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a look at a source gave."""

    #: (the service's own id of it, what its event carries), the oldest first. A few at most.
    items: Sequence[tuple[str, Mapping[str, Any]]] = ()
    #: How far it was looked at, as JSON: the next look begins there.
    seen: Any


#: Looks at a source: (api, `seen` of the look before; None for the first, of which only `seen` is
#: used). Reads little, and acts on nothing.
Poll = Callable[[Api, Any], Awaitable[Found]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Something new of a service, as events that are named <connector>-<name>."""

    name: str
    #: Seconds between two looks.
    every: float
    poll: Poll


def made(connector: Connector, declaration: Declaration, ground: Ground) -> Tool:
    """Return the tool. Raises TypeError for a function without a docstring."""
    declared, options = declaration.run, dict(declaration.options)
    name = f"{connector.name}_{declared.__name__}"

    async def api(ctx: ToolContext, arguments: Mapping[str, Any], *, rehearsed: bool) -> Api:
        label = str(arguments.get("account") or "")
        account = None
        if not connector.open or label:
            account = await ground.choose(ctx.session, connector.name, label)
        return Api(connector, ground, account, ctx, rehearsed=rehearsed)

    async def run(ctx: ToolContext, /, **arguments: Any) -> Result:
        opened = await api(ctx, arguments, rehearsed=False)
        try:
            with understood(opened):
                return await declared(opened, **_own(arguments))
        except (ServiceRefused, Unreachable) as error:
            error.taint = connector.name  # it may hold the service's own words
            raise

    _dress(run, declared, name)
    for hook in ("look_up", "witness"):
        if hook in options:
            options[hook] = _hooked(options[hook], api)
    if options["risk"] is Risk.EXTERNAL:
        options["target"] = _targets(connector, options["target"])
        options.setdefault("settle", SETTLE)
        options["preview"] = _previewed(options.get("preview"), declared, api)
    text = inspect.getdoc(declared) or ""
    if not text:
        raise TypeError(f"tool {name} has no docstring, so no model could use it")
    return Tool(name=name, description=text.split("\n\nArgs:")[0].strip(), run=run, **options)


@contextmanager
def understood(api: Api) -> Iterator[None]:
    """Turn what reading an answer of an unforeseen form raises into a sentence.

    Raises Unreachable; Unsure when an act was sent before.
    """
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        title = api.connector.title
        _log.warning("an answer of %s is not understood", title, exc_info=error)
        what = f"{title} answered in a form that is not understood ({type(error).__name__})."
        raise (Unsure if api.acted else Unreachable)(what) from None


def _own(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name != "account"}


Opened = Callable[..., Awaitable[Api]]


def _hooked(hook: Callable[..., Awaitable[Any]], api: Opened) -> Callable[..., Awaitable[Any]]:
    async def hooked(ctx: ToolContext, arguments: Mapping[str, Any], *more: Any) -> Any:
        opened = await api(ctx, arguments, rehearsed=True)
        with understood(opened):
            return await hook(opened, _own(arguments), *more)

    return hooked


def _targets(
    connector: Connector, target: Callable[[Mapping[str, Any]], Sequence[str]]
) -> Callable[[Mapping[str, Any]], Sequence[str]]:
    def targets(arguments: Mapping[str, Any]) -> Sequence[str]:
        account = str(arguments.get("account") or "")
        return [connector.target(each, account) for each in target(arguments)]

    return targets


def _previewed(
    preview: Callable[..., Awaitable[str]] | None, declared: Declared, api: Opened
) -> Callable[[ToolContext, Mapping[str, Any]], Awaitable[str]]:
    async def shown(ctx: ToolContext, arguments: Mapping[str, Any]) -> str:
        opened = await api(ctx, arguments, rehearsed=True)
        told = await told_by(opened, arguments)
        return f"As {opened.account.label}:\n{told}" if opened.account else told

    async def told_by(opened: Api, arguments: Mapping[str, Any]) -> str:
        if preview is not None:
            with understood(opened):
                return await preview(opened, _own(arguments))
        try:
            with understood(opened):
                await declared(opened, **_own(arguments))
        except Planned as planned:
            return _request_in_words(planned.request)
        return "It would change nothing."

    return shown


def _request_in_words(request: Request) -> str:
    """Return the request as a card shows it: without its headers, and without what is secret."""
    query = "&".join(f"{name}={value}" for name, value in request.query)
    head = f"{request.method} {request.url}{f'?{query}' if query else ''}"
    body = (request.body or b"").decode("utf-8", "replace")
    whole = blotted_in(f"{head}\n\n{body}" if body else head, request.hidden)
    return whole if len(whole) <= PREVIEW else f"{whole[:PREVIEW]}… ({len(whole):,} characters)"


def _dress(run: Declared, declared: Declared, name: str) -> None:
    """Give `run` the signature and text of `declared`, with `account` in place of the api."""
    signature = inspect.signature(declared)
    hints = typing.get_type_hints(declared)
    own = list(signature.parameters.values())[1:]
    ctx = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=ToolContext)
    account = inspect.Parameter(
        "account", inspect.Parameter.POSITIONAL_OR_KEYWORD, default="", annotation=str
    )
    typed = [each.replace(annotation=hints[each.name]) for each in own]
    doc = inspect.getdoc(declared) or ""
    head = doc if "\n\nArgs:" in doc else f"{doc}\n\nArgs:"
    run.__doc__ = f"{head}\n    account: Which account, where several are connected; else empty."
    run.__name__ = run.__qualname__ = name
    run.__annotations__ = {each.name: each.annotation for each in (ctx, *typed, account)}
    run.__annotations__["return"] = Result
    run.__signature__ = signature.replace(parameters=[ctx, *typed, account])  # type: ignore[attr-defined]
