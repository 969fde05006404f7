"""Faults of shutdowns and deploys (docs/faults.md), with real processes."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import RunScript
from tests.fault.events import Started
from tests.fault.lab import rounds
from tests.fault.site import open_site
from tests.servers import ServerProcess


@pytest.mark.slow
async def test_b144_restarts_neither_lose_nor_double_jobs_that_wait(
    valkey: ServerProcess, queue_name: str, tmp_path: Path
) -> None:
    """Due over some seconds, with a deploy in each; handlers are shorter than the grace."""
    dice = random.Random(144)
    jobs = rounds(300)
    async with open_site(valkey, queue_name, tmp_path, grace_s=5.0) as site:
        task = site.queue.stub("work")
        span_s = jobs / 60
        await site.queue.enqueue_many([task.after(dice.random() * span_s).job(0.2) for _ in range(jobs)])
        ends = time.monotonic() + span_s
        while time.monotonic() < ends:
            await site.start(1)
            await asyncio.sleep(0.7)
            await asyncio.to_thread(site.fleet.stop_all)
        await site.start(1)
        events, verdict = await site.come_to_rest()
        assert verdict.broken() == {}, str(verdict)
        runs = Counter(event.job_id for event in events if isinstance(event, Started))
        assert len(runs) == jobs
        assert set(runs.values()) == {1}


PRODUCER = """
import asyncio, sys
from aiodq import Queue

queue = Queue(sys.argv[1], url=sys.argv[2])

async def main() -> None:
    job = await queue.stub("work").options(job_id="x").after(60).enqueue()
    assert await job.status() == "scheduled"
    assert await job.cancel()
    print("done", flush=True)

asyncio.run(main())
"""


async def test_b148_a_producer_ends_by_itself_and_without_a_warning(
    valkey: ServerProcess, queue_name: str, run_script: RunScript, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing is closed by hand."""
    script = run_script(PRODUCER, queue_name, valkey.url, env={"PYTHONDEVMODE": "1"}, ready="done")
    began = time.monotonic()
    assert await asyncio.to_thread(script.wait) == 0
    assert time.monotonic() - began < 1.5
    # On a slow machine development mode tells of slow steps, as of importing.
    told = [line for line in capfd.readouterr().err.splitlines() if not line.startswith("Executing <")]
    assert told == []
