"""The command about watches: asked for in words, confirmed on a card, listed, paused, removed."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from zoneinfo import ZoneInfo

from bot.commands.base import Command, Context
from bot.inbound import routing
from bot.inbound.answers import show_in
from bot.markup import code, cut, plain
from connectors.sources import check_event
from engine.errors import ScheduleError
from engine.schedule import promises, subscriptions
from engine.schedule.promises import EVENT, WINDOW, Asked
from engine.schedule.subscriptions import Watch
from engine.store.base import Tx

__all__ = ["WATCH"]

_EXAMPLES = (
    "Write for example: `/watch #alerts: open a ticket when the checkout fails`, "
    "`/watch here with checkout or payment every 2 m: say what broke`, "
    "`/watch event deploy-done: check the dashboards`."
)

#: The place ends at the first colon that a space follows: a target has none.
_SAID = re.compile(
    r"(?:(?P<event>event)\s+)?(?P<place>\S+?)"
    r"(?:\s+with\s+(?P<words>.+?))?"
    r"(?:\s+every\s+(?P<n>\d{1,4})\s*(?P<unit>s|m)\w*)?"
    r"\s*:\s+(?P<task>.+)",
    re.S | re.I,
)


async def _watch(context: Context, given: list[str]) -> str:
    verb, _, rest = (given[0] if given else "list").partition(" ")
    act = _ACTS.get(verb.lower())
    if act is not None:
        return await act(context, rest.strip().strip("`"))
    return await _asked(context, given[0].strip())


async def _asked(context: Context, said: str) -> str:
    """`#alerts with checkout or payment every 2 m: open a ticket`: answered with a card."""
    found = _SAID.fullmatch(said)
    if found is None:
        raise ScheduleError("I do not see what to watch, and what for.", _EXAMPLES)
    any_of, all_of = _words(found["words"] or "")
    window = int(found["n"]) * (60 if found["unit"].lower() == "m" else 1) if found["n"] else WINDOW

    def work(tx: Tx) -> str:
        asked = Asked(
            tenant=context.tenant,
            owner=context.person.id,
            home=context.target,
            persona=context.house.defaults.persona,
            model=context.house.defaults.model,
            source=_source(tx, context, found["place"], event=bool(found["event"])),
            task=found["task"],
            any=any_of,
            all=all_of,
            window=float(window),
        )
        prompt = promises.ask_watch(tx, asked, context.house.now())
        if context.person.role != "owner":  # the card goes to who may answer it
            return "I have asked my owner: nothing is watched before they say yes."
        show_in(tx, prompt, context.target, context.house.now())
        return "Nothing is watched before you confirm the card."

    text = await context.store.write(work)
    context.poke()
    return text


def _words(said: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words of which one must, and those that all must be in a line."""
    if re.search(r"\s+and\s+", said, re.I):
        if re.search(r"\s+or\s+|,", said, re.I):
            raise ScheduleError("'and' and 'or' together are not clear.", _EXAMPLES)
        return (), tuple(_cleaned(re.split(r"\s+and\s+", said, flags=re.I)))
    return tuple(_cleaned(re.split(r"\s*,\s*|\s+or\s+", said, flags=re.I))), ()


def _cleaned(words: list[str]) -> list[str]:
    return [word.strip().strip("\"'“”") for word in words if word.strip()]


def _source(tx: Tx, context: Context, place: str, *, event: bool) -> str:
    if event or place.startswith(EVENT):
        name = place.removeprefix(EVENT)
        check_event(tx, context.tenant, context.person.id, name)
        return f"{EVENT}{name}"
    return routing.meant(tx, context.tenant, context.target, place)


# -- looking and steering


async def _list(context: Context, rest: str) -> str:
    def look(tx: Tx) -> list[Watch]:
        found = subscriptions.listed(tx, context.tenant)
        return [each for each in found if _may(context, each)]

    lines = [_line(each) for each in await context.store.read(look)]
    return "\n".join(lines) or f"Nothing is watched. {_EXAMPLES}"


def _line(watch: Watch) -> str:
    state = "" if watch.status == "active" else ", paused"
    return f"`{watch.id}` {code(watch.source)}{state}: {cut(plain(watch.task), 100, 1)[0]}"


async def _show(context: Context, rest: str) -> str:
    watch = await context.store.read(lambda tx: _own(tx, context, rest))
    made = datetime.fromtimestamp(watch.created_at, ZoneInfo(context.zone))
    words = [f"one of {', '.join(watch.any)}"] if watch.any else []
    words += [f"all of {', '.join(watch.all)}"] if watch.all else []
    lines = [
        f"`{watch.id}` {code(watch.source)}, {watch.status}, since {made:%Y-%m-%d %H:%M}",
        plain(watch.task),
        *([f"Only lines with {' and '.join(map(code, words))}"] if words else []),
        f"Gathers for {watch.window:g} s, in session {watch.session}",
    ]
    return "\n".join(lines)


def _own(tx: Tx, context: Context, start: str) -> Watch:
    """Return the watch, when the person may steer it."""
    found = subscriptions.find(tx, context.tenant, start)
    if not _may(context, found):
        raise ScheduleError("This watch belongs to somebody else.", "Ask them, or an owner.")
    return found


def _may(context: Context, watch: Watch) -> bool:
    return watch.owner == context.person.id or context.person.role in ("operator", "owner")


def _switch(active: bool) -> Callable[[Context, str], Awaitable[str]]:
    async def act(context: Context, rest: str) -> str:
        def work(tx: Tx) -> str:
            found = _own(tx, context, rest)
            now = context.house.now()
            subscriptions.switch(tx, found, active, context.person.id, now)
            if active:
                return f"Watch {found.id} goes on."
            return f"Watch {found.id} is paused. `/watch resume {found.id}` goes on."

        return await context.store.write(work)

    return act


async def _remove(context: Context, rest: str) -> str:
    def work(tx: Tx) -> str:
        found = _own(tx, context, rest)
        subscriptions.remove(tx, found, context.person.id, context.house.now())
        return f"Watch {found.id} is removed. What it did stays in session {found.session}."

    return await context.store.write(work)


_ACTS: Mapping[str, Callable[[Context, str], Awaitable[str]]] = {
    "list": _list,
    "show": _show,
    "pause": _switch(False),
    "resume": _switch(True),
    "remove": _remove,
    "delete": _remove,
}

WATCH = Command(
    name="watch",
    usage="PLACE [with WORD or WORD] [every N s]: WHAT | event NAME: WHAT | list | show ID "
    "| pause ID | resume ID | remove ID",
    help="look at what others write, for example: #alerts: open a ticket when the checkout fails",
    run=_watch,
    most=None,
    whole=True,
)
