"""Sends each call to the right provider: keys, retries before the first token, then fallbacks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from engine.clock import Now, system_now
from engine.models.adapt import Connection
from engine.models.base import (
    Answer,
    Delta,
    KeyRejected,
    Model,
    ModelError,
    ModelUnavailable,
    Request,
)
from engine.models.catalogue import Catalogue, Entry, Provider
from engine.models.content import Documents, fit
from engine.models.failures import QuotaSpent
from engine.models.practice import PracticeModel
from engine.models.stream import Pace

__all__ = ["Patience", "Router"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a model that is unavailable is tried before the next one is; seconds."""

    attempts: int = 4
    #: From the first attempt to the last, waits included.
    total: float = 90.0
    #: The first wait; each later one is twice as long, up to `longest`, less up to half by chance.
    first: float = 0.5
    longest: float = 20.0


class Router:
    """Implements `Model` over every provider of the catalogue.

    Args:
        catalogue: what is known about providers and models.
        environ: where keys (`OPENAI_API_KEY` …) and addresses (`OPENAI_BASE_URL` …) are found.
        documents: the PDFs the view has read; shared, so that a fallback need not read them again.
        pace: how long a stream may be silent.
        patience: how often and how long an unavailable model is tried.
        now, sleep, chance: the clock, the wait, and a number from 0 to 1; handed in by tests.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        environ: Mapping[str, str],
        *,
        documents: Documents | None = None,
        pace: Pace | None = None,
        patience: Patience | None = None,
        now: Now = system_now,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.catalogue = catalogue
        self._environ = environ
        self._documents = documents or Documents()
        self._pace = pace or Pace()
        self._patience = patience or Patience()
        self._now = now
        self._sleep = sleep
        self._chance = chance
        self._practice: Model = PracticeModel()
        # an SDK's client works on the loop it was made on only
        self._homes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Home] = WeakKeyDictionary()

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Answer, None]:
        """Yield deltas, then the Answer; see `Model`.

        Retries and fallbacks happen only while nothing was yielded. Raises the first model's
        ModelError when none answered.
        """
        entry = self.catalogue.entry(request.model)
        asked, first, notice, shown = request, entry, "", False
        remaining = list(request.fallbacks)
        failed: ModelUnavailable | None = None
        while True:
            try:
                async with aclosing(self._patiently(entry, asked)) as pieces:
                    async for piece in pieces:
                        shown = True
                        if isinstance(piece, Answer) and notice:
                            piece = replace(piece, notices=(*piece.notices, notice))
                        yield piece
                return
            except ModelUnavailable as error:
                if shown:
                    raise
                failed = failed or error
            except ModelError:
                if shown or failed is None:
                    raise
            following = await self._following(remaining, request)
            if following is None:
                raise failed
            entry, asked = following
            notice = f"{first.id} was unavailable, so {entry.id} answered."

    async def warm(self, model: str) -> None:
        """Load what calling `model` needs, in a thread; nothing is sent. Raises ModelError."""
        entry = self.catalogue.entry(model)
        if entry.provider.protocol != "practice":
            await self._connection(entry.provider)

    async def aclose(self) -> None:
        """Close the connections made on the running event loop. Safe to call twice."""
        home = self._homes.pop(asyncio.get_running_loop(), None)
        for connection in list(home.connections.values()) if home else ():
            await connection.aclose()

    def describe(self, model: str) -> str:
        """Say in one line what `model` is, for a person; raises UnknownModel."""
        entry = self.catalogue.entry(model)
        senses = [name for name, has in (("images", entry.vision), ("PDFs", entry.pdf)) if has]
        facts = [
            f"{entry.window:,} tokens of context",
            f"sees {' and '.join(senses)}" if senses else "text only",
            _price(entry),
        ]
        if not entry.known:
            facts.append("not in the catalogue, so these are cautious guesses")
        return f"{entry.id}: {', '.join(facts)}."

    async def _following(
        self, remaining: list[str], request: Request
    ) -> tuple[Entry, Request] | None:
        """Return the next fallback and the request fitted to it; skip ids that name nothing."""
        while remaining:
            try:
                entry = self.catalogue.entry(remaining.pop(0))
            except ModelError:
                continue
            await self._documents.prepare(request.messages, entry)
            messages = fit(request.messages, entry, self._documents)
            return entry, replace(request, model=entry.id, messages=messages)
        return None

    async def _patiently(
        self, entry: Entry, request: Request
    ) -> AsyncGenerator[Delta | Answer, None]:
        started, attempt, shown = self._now(), 0, False
        while True:
            attempt += 1
            try:
                async with aclosing(await self._call(entry, request)) as pieces:
                    async for piece in pieces:
                        shown = True
                        yield piece
                return
            except QuotaSpent:
                raise
            except ModelUnavailable as error:
                wait = self._wait(attempt, error.retry_after)
                late = self._now() - started + wait > self._patience.total
                if shown or late or attempt >= self._patience.attempts:
                    raise
            await self._sleep(wait)

    def _wait(self, attempt: int, asked: float | None) -> float:
        """Return the seconds to wait: never less than the server asked for."""
        backoff = min(self._patience.longest, self._patience.first * 2.0 ** (attempt - 1))
        spread = backoff * (0.5 + self._chance() / 2)
        return spread if asked is None else asked + spread / 4

    async def _call(self, entry: Entry, request: Request) -> AsyncGenerator[Delta | Answer, None]:
        if entry.provider.protocol == "practice":
            return self._practice.stream(request)
        connection = await self._connection(entry.provider)
        return connection.stream(entry, request, self._pace, self._now)

    async def _connection(self, provider: Provider) -> Connection:
        key = self._key(provider)
        home = self._homes.setdefault(asyncio.get_running_loop(), _Home())
        async with home.opening:
            found = home.connections.get(provider.name)
            if found is None:
                base_url = self._environ.get(provider.base_url_variable) or provider.base_url
                found = await Connection.open(provider, base_url, key)
                home.connections[provider.name] = found
        return found

    def _key(self, provider: Provider) -> str:
        """Return the provider's own key, never another's; "" where none is needed."""
        if not provider.key:
            return ""
        for variable in provider.key:
            value = self._environ.get(variable, "").strip()
            if value:
                return value
        raise KeyRejected(
            f"There is no key for {provider.name}.",
            f"Set {' or '.join(provider.key)}, or choose a model of another provider.",
        )


class _Home:
    """The connections of one event loop."""

    def __init__(self) -> None:
        self.connections: dict[str, Connection] = {}
        self.opening = asyncio.Lock()


def _price(entry: Entry) -> str:
    if entry.price is None:
        return "price unknown"
    return f"${entry.price.input:g} in and ${entry.price.output:g} out per million tokens"
