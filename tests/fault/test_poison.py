"""A job that takes its process down with it, among many that do not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.fault.events import Claimed
from tests.fault.site import Site, open_site
from tests.servers import ServerProcess

pytestmark = pytest.mark.slow

JOBS = 1000
WORKERS = 4


async def keep_up(site: Site) -> int:
    """Starts a new worker for each that died, as a service manager does, until nothing waits or is held.
    Returns how many died."""
    deaths = 0
    while True:
        dead = [worker for worker in site.fleet.workers if not worker.alive]
        for worker in dead:
            site.fleet.note("kill", worker.name)
            site.fleet.workers.remove(worker)
            worker.close()
            deaths += 1
        if dead:
            await site.start(len(dead))
        state = await site.state()
        if not state.schedule and not state.processing:
            return deaths
        await asyncio.sleep(0.02)


async def test_one_killer_among_1000_jobs_is_buried_after_three_crashes_and_no_innocent_is(
    server: ServerProcess, queue_name: str, tmp_path: Path
) -> None:
    async with open_site(server, queue_name, tmp_path) as site:
        await site.start(WORKERS)
        await site.write(JOBS // 2, 0.1, over_s=4.0)
        killer = await site.queue.stub("die").after(1).options(job_id="killer").enqueue()
        await site.write(JOBS // 2, 0.1, over_s=4.0)
        async with asyncio.timeout(90):
            deaths = await keep_up(site)
        letters = await site.queue.dead.list()
        state = await site.state()
        assert await site.queue.dead.purge(older_than=0) == 1
        await asyncio.to_thread(site.fleet.stop_all)
    claims = [event for event in site.fleet.history() if isinstance(event, Claimed)]
    runs = [claim for claim in claims if claim.job_id == killer.id]
    print(f"{server.kind}: {deaths} processes died, the killer was claimed {len(runs)} times")
    assert [letter.id for letter in letters] == ["killer"]
    assert "died 3 times" in letters[0].reason
    assert deaths == 3
    assert len({claim.job_id for claim in claims}) == JOBS + 1
    assert list(state.payload) == ["killer"]
