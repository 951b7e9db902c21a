"""A worker killed with SIGKILL at every edge of its turn loses nothing and does nothing twice.

NOD_FAULT_SEED    which edges die how; random and printed when unset
NOD_FAULT_KILLS   first kills over both stores, 200 unless told; never fewer than two an edge
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from engine import budgets, people
from engine.budgets import Limits
from engine.clock import system_now
from engine.inbox import Person
from engine.models import usage
from engine.store.opening import open_store
from tests.fault.child import Spec
from tests.fault.forks import KILLED, ROOT, Fork
from tests.fault.proof import faults, with_queries

#: Children at the same time.
LANES = 2
#: One run in so many dies again while it recovers, and of those half once more.
AGAIN = 5
#: A busy machine shifts edges by a commit or so; what a kill missed is tried again.
ROUNDS = 5
#: The furthest edge of a recovery at which it dies again.
DEEP = 24

SEED = int(os.environ.get("NOD_FAULT_SEED") or random.SystemRandom().randrange(2**32))
KILLS = int(os.environ.get("NOD_FAULT_KILLS") or 200)


def _planned(edges: int, store: str) -> list[tuple[list[int], bool]]:
    """Return for each run the edges at which its workers die, and whether the surface can look."""
    chance = random.Random(f"{SEED} {store}")
    count = max(KILLS // 2, 2 * edges)
    rounds = [chance.sample(range(1, edges + 1), edges) for _ in range(-(-count // edges))]
    firsts = [edge for each in rounds for edge in each][:count]
    runs = []
    for number, first in enumerate(firsts):
        deaths = [first]
        if chance.randrange(AGAIN) == 0:
            deaths += [chance.randint(1, DEEP) for _ in range(chance.choice((1, 2)))]
        runs.append((deaths, number // edges % 2 == 0))
    return runs


class Lane:
    """Runs one after the other in one data folder."""

    def __init__(self, fork: Fork, data: Path, postgres: str) -> None:
        self.fork = fork
        self.data = data
        self._postgres = postgres
        #: What was killed, by the name of the edge.
        self.died: Counter[str] = Counter()
        #: What the person answered, by kind.
        self.answers: Counter[str] = Counter()
        self.children = 0

    async def spec(self, number: int) -> Spec:
        """Return run `number` on a store of its own."""
        data = self.data / str(number)
        data.mkdir(parents=True)
        url = self._postgres
        if not url:
            shutil.copy(self.data.parent / "template.db", data / "nod.db")
            url = f"sqlite:///{data / 'nod.db'}"
        return Spec(url=url, data=str(data), thread=f"console:r{number}")

    async def once(self, number: int, deaths: Sequence[int], sees: bool) -> list[str]:
        """Let workers die at `deaths`, one after the other, then one finish; return the faults."""
        spec = replace(await self.spec(number), sees=sees)
        for at in (*deaths, 0):
            code = await self.fork.run(replace(spec, at=at))
            self.children += 1
            if code == 0:
                break
            if code != KILLED or at == 0:
                return [f"a worker ended with {code}: {(spec.folder / 'stderr').read_text()}"]
            self.died[_last_line(spec.folder / "edges")] += 1
        told = map(json.loads, (spec.folder / "told").read_text().splitlines())
        self.answers.update(line["kind"] for line in told if line["told"] == "answer")
        store = with_queries(await open_store(spec.url))
        try:
            found: list[str] = await store.read(lambda tx: faults(tx, spec))
            return found
        finally:
            await store.close()


def _last_line(file: Path) -> str:
    return file.read_text().splitlines()[-1]


def _missed(edges: Sequence[str], lanes: Sequence[Lane]) -> list[str]:
    """Return the names of the edges that were not met twice by a kill."""
    died = sum((lane.died for lane in lanes), Counter[str]())
    return [name for name, n in Counter(edges).items() if died[name] < 2 * n]


async def _edges(lane: Lane) -> list[str]:
    """Run without dying, and return the edges passed."""
    spec = await lane.spec(0)
    assert await lane.fork.run(spec) == 0, (spec.folder / "stderr").read_text()
    return (spec.folder / "edges").read_text().splitlines()


@pytest.mark.timeout(max(600, 6 * KILLS))  # seconds; a run of two processes takes about one
@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
async def test_a_kill_at_any_edge_loses_nothing_and_repeats_nothing(
    backend: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    urls = [""] * LANES
    if backend == "postgres":
        make: Callable[[], str] = request.getfixturevalue("new_postgres_url")
        urls = [make() for _ in range(LANES)]
    await (await open_store(str(tmp_path / "template.db"))).close()
    forks = [Fork() for _ in range(LANES)]
    async with forks[0], forks[1]:
        lanes = [
            Lane(fork, tmp_path / f"lane{n}", url)
            for n, (fork, url) in enumerate(zip(forks, urls, strict=True))
        ]
        edges = await _edges(lanes[0])
        numbers = itertools.count(1)
        runs = _planned(len(edges), backend)
        wrong: dict[str, list[str]] = {}

        async def drive(lane: Lane) -> None:
            while runs:
                number, (deaths, sees) = next(numbers), runs.pop(0)
                found = await lane.once(number, deaths, sees)
                if found:
                    wrong[f"run {number}, deaths {deaths}, sees {sees}, {lane.data}"] = found

        for _ in range(ROUNDS):
            async with asyncio.TaskGroup() as group:
                for lane in lanes:
                    group.create_task(drive(lane))
            missed = _missed(edges, lanes)
            runs = [([edges.index(name) + 1], True) for name in missed]
    died = sum((lane.died for lane in lanes), Counter[str]())
    answers = sum((lane.answers for lane in lanes), Counter[str]())
    with capsys.disabled():
        print(
            f"\n{backend}: NOD_FAULT_SEED={SEED}, {sum(died.values())} kills, {len(edges)} edges, "
            f"{sum(lane.children for lane in lanes)} processes, answers {dict(answers)}"
        )
    assert not wrong, "\n".join(f"{run}: {each}" for run, each in wrong.items())
    assert not missed, f"not killed twice: {missed}"
    assert answers["happened"] and answers["run"], "no unknown outcome was ever put to the person"


OWNER = Person(id=people.CONSOLE, role="owner", name="console")


async def _budgeted(url: str) -> None:
    """Set a budget that is never reached."""
    store = await open_store(url)
    limits = Limits(unit="calls", period="month", soft=1_000)
    await store.write(
        lambda tx: budgets.put(
            tx, "local", "tenant", "", limits, zone="UTC", by=OWNER, now=system_now()
        )
    )
    await store.close()


@pytest.mark.timeout(120)
async def test_a_process_started_from_the_command_line_takes_up_what_one_that_died_left(
    tmp_path: Path,
) -> None:
    """The same without forks; the first dies between the effect and its record.

    Every call of a model counts in a budget, once.
    """
    url = f"sqlite:///{tmp_path / 'nod.db'}"
    await _budgeted(url)
    spec = Spec(url=url, data=str(tmp_path), thread="console:plain", sees=False)
    dry = replace(spec, thread="console:dry")
    assert await _plain(dry) == 0
    at = (dry.folder / "edges").read_text().splitlines().index("post: after") + 1
    assert await _plain(replace(spec, at=at)) == KILLED
    assert await _plain(spec) == 0, (spec.folder / "stderr").read_text()
    store = with_queries(await open_store(url))
    [standing] = await store.read(lambda tx: budgets.listed(tx, "local", OWNER, system_now()))
    used = await store.read(lambda tx: usage.total(tx, "local", 0, 9e12))
    assert (standing.spent.calls, standing.spent.tokens) == (used.calls, used.tokens)
    assert used.calls > 2
    assert await store.read(lambda tx: faults(tx, spec)) == []
    await store.close()


#: Seconds; a worker that waited for the dead one's lease to lapse would need 30.
AT_ONCE = 20.0


async def _plain(spec: Spec) -> int:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.fault.child", spec.line(), cwd=ROOT
    )
    return await asyncio.wait_for(process.wait(), AT_ONCE)
