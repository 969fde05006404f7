"""Fixtures of the integration tests of whole parts: a queue on memory and on a real server, in a cluster, or
behind Sentinels."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, cast

import pytest

from aiodq import Queue
from tests.workers import Bench

if TYPE_CHECKING:
    from tests.servers import ServerProcess


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "bench" in metafunc.fixturenames:
        chosen = cast("str", metafunc.config.getoption("--server"))
        kind = chosen if chosen in ("cluster", "sentinel") else "valkey"
        metafunc.parametrize("bench", ["memory", kind], indirect=True)


@pytest.fixture
async def bench(request: pytest.FixtureRequest, queue_name: str) -> AsyncIterator[Bench]:
    """A queue of the test's own; afterwards no worker may hold anything, and no dead job leaves traces."""
    kind = cast("str", request.param)
    server = None if kind == "memory" else cast("ServerProcess", request.getfixturevalue(kind))
    url = f"memory://{queue_name}" if server is None else server.url
    queue = Queue(queue_name, url=url)
    async with queue:
        bench = Bench(queue, url)
        yield bench
        dead = await bench.store.peek("dead", limit=100)
        await bench.store.purge([job.job_id for job in dead.jobs])
        stats = await bench.store.stats()
        holders = 0 if bench.dead_workers else stats.holders
        assert (stats.processing, holders, stats.idle) == (0, 0, 0), stats
