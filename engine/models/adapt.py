"""One provider on one event loop: an aisuite client around our provider class for its protocol.

aisuite and the provider's SDK take a second to import, so both wait until a provider is used, and
then load in a thread.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from engine.clock import Now
from engine.models.base import Answer, Delta, Message, ModelError, Request, Usage
from engine.models.catalogue import Entry, Provider
from engine.models.content import estimate
from engine.models.failures import classify, complaint
from engine.models.opentext import OpenText
from engine.models.schemas import wire_name
from engine.models.stream import Fold, Pace, Piece, paced
from engine.models.usage import cost
from engine.models.wire import Options

__all__ = ["Connection"]

#: Seconds to open a connection, and to send a request.
CONNECT_TIMEOUT, SEND_TIMEOUT = 10.0, 120.0
#: How many parameters one call may do without before the provider's refusal is believed.
FIXES = 3


class Connection:
    """Streams calls to one provider. Belongs to the event loop it was opened in."""

    def __init__(self, provider: Provider, key: str, client: Any, wire: Any, module: Any) -> None:
        self.provider = provider
        self._key = key
        self._client = client
        self._wire = wire
        self._module = module
        #: Model -> parameters it refused; learnt once, kept while connected.
        self._without: dict[str, frozenset[str]] = {}

    @classmethod
    async def open(cls, provider: Provider, base_url: str, key: str) -> Connection:
        """Load the provider's SDK and make its client, in a thread. Sends nothing."""
        return await asyncio.to_thread(cls._load, provider, base_url, key)

    @classmethod
    def _load(cls, provider: Provider, base_url: str, key: str) -> Connection:
        import aisuite  # type: ignore[import-untyped]
        import httpx2

        module = importlib.import_module(f"engine.models.{provider.protocol}_wire")
        # reading has no limit here: only content counts, and `paced` watches it
        timeout = httpx2.Timeout(None, connect=CONNECT_TIMEOUT, write=SEND_TIMEOUT)
        wire = module.Wire(provider, api_key=key, base_url=base_url, timeout=timeout)
        client = aisuite.Client()
        client.providers[provider.protocol] = wire
        return cls(provider, key, client, wire, module)

    async def stream(
        self, entry: Entry, request: Request, pace: Pace, now: Now
    ) -> AsyncGenerator[Delta | Answer, None]:
        """Make one call, without retries; raises ModelError. Closing it closes the connection.

        A parameter the model refuses before its first token is left out, and the call made again.
        """
        for fixes in range(FIXES + 1):
            options = self._options(entry, request)
            begun = False
            try:
                async with aclosing(self._once(entry, request, options, pace)) as pieces:
                    async for piece in pieces:
                        begun = True
                        yield piece
                return
            except ModelError:
                raise
            except Exception as error:  # noqa: BLE001  # broad: each SDK raises its own kinds
                refused = self._refused(complaint(error), request, options)
                if refused is None or begun or fixes == FIXES:
                    raise self._failure(error, entry, now) from None
                self._without[entry.model] = options.without | {refused}
        async with aclosing(
            self._once(entry, request, self._options(entry, request), pace)
        ) as last:
            async for piece in last:
                yield piece

    async def aclose(self) -> None:
        """Close every connection to the provider."""
        await self._wire.close()

    async def _once(
        self, entry: Entry, request: Request, options: Options, pace: Pace
    ) -> AsyncGenerator[Delta | Answer, None]:
        names = {wire_name(name): name for name in _names(request.tools)}
        fold = Fold(entry.id, names, OpenText(names) if self.provider.open_models else None)
        kwargs: dict[str, Any] = {"options": options}
        if request.tools:
            kwargs["tools"] = list(request.tools)
        pieces: AsyncGenerator[Piece, None] = await self._client.chat.completions.acreate(
            f"{self.provider.protocol}:{entry.model}", request.messages, stream=True, **kwargs
        )
        async with aclosing(pieces), aclosing(paced(pieces, pace, entry.id)) as watched:
            async for piece in watched:
                delta = fold.add(piece)
                if delta is not None:
                    yield delta
        last, answer = fold.end()
        if last is not None:
            yield last
        yield self._complete(answer, fold, entry, request.messages)

    def _complete(
        self, answer: Answer, fold: Fold, entry: Entry, messages: Sequence[Message]
    ) -> Answer:
        usage = fold.usage or _guess(answer, messages)
        data = {self.provider.name: fold.data} if fold.data else {}
        return replace(answer, usage=usage, provider_data=data, cost=cost(usage, entry.price))

    def _options(self, entry: Entry, request: Request) -> Options:
        without = self._without.get(entry.model, frozenset())
        return Options(entry=entry, session=request.session, without=without)

    def _refused(self, said: str, request: Request, options: Options) -> str | None:
        """Return the parameter that was sent and is complained about, or None."""
        body = self._module.request
        for name in self._module.OPTIONAL:
            if name in said and name not in options.without:
                fewer = replace(options, without=options.without | {name})
                sent = body(request.messages, request.tools, options)
                if sent != body(request.messages, request.tools, fewer):
                    return str(name)
        return None

    def _failure(self, error: Exception, entry: Entry, now: Now) -> Exception:
        return classify(error, entry.id, self._key, now()) or error


def _names(tools: Sequence[Any]) -> list[str]:
    return [tool["function"]["name"] for tool in tools]


def _guess(answer: Answer, messages: Sequence[Message]) -> Usage:
    """Estimate the usage of a call whose provider told none."""
    written = sum(len(call.arguments) + len(call.name) for call in answer.calls)
    output = len(answer.text) + len(answer.reasoning) + written
    return Usage(input=sum(map(estimate, messages)), output=(output + 3) // 4)
