"""What the suites of the model layer share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.fakes.desk import Desk, open_desk
from tests.fakes.llm import FakeLLM


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Desk]:
    """One provider and one router for all: making a client takes longer than most tests."""
    async with FakeLLM() as running:
        made = open_desk(running)
        yield made
        await made.router.aclose()


@pytest.fixture
def fake(shared: Desk) -> FakeLLM:
    """The provider, as new."""
    shared.fake.reset()
    return shared.fake


@pytest.fixture
def desk(shared: Desk, fake: FakeLLM) -> Desk:
    """The shared desk, knowing nothing of earlier tests."""
    shared.waits.clear()
    for home in shared.router._homes.values():
        for connection in home.connections.values():
            connection._without.clear()
    return shared
