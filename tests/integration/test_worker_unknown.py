"""Jobs of tasks that a worker does not know go back, ever more slowly, and are run by a worker that does."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from aiodq import Queue, Worker
from aiodq._core.store import TurnAnswer
from aiodq.events import JobSettled, TaskUnknown
from tests.workers import Bench, runtime_of


async def test_b149_an_unknown_task_goes_back_with_growing_delay(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiodq._core.decision.HANDBACK_FIRST_MS", 20)

    @bench.queue.task
    async def known() -> None:
        bench.note("known")

    await bench.put("unknown-1", "unheard-of")
    await bench.put("unknown-2", "unheard-of")
    async with bench.worker():
        await bench.until(lambda: len([e for e in bench.told(TaskUnknown) if e.job_id == "unknown-1"]) == 4)
        await known.enqueue()
        await bench.until(lambda: bench.runs("known") == 1)
    delays = [event.again_in for event in bench.told(TaskUnknown) if event.job_id == "unknown-1"]
    assert delays[:4] == [timedelta(milliseconds=ms) for ms in (20, 40, 80, 160)]
    assert caplog.text.count("no handler for task 'unheard-of'") == 1, (
        "said once for each task, not for each job"
    )
    tally = await bench.tally("unknown-1")
    assert (tally.failures, tally.handbacks) == (0, len(delays))
    assert {event.outcome for event in bench.told(JobSettled) if event.task == "unheard-of"} == {"release"}

    # A deploy later: a worker that knows it.
    newer = Queue(bench.queue.name, url=bench.url)

    @newer.task(name="unheard-of")
    async def heard_of() -> None:
        bench.note("heard of")

    async with Worker(newer, lease=1, grace=1):
        await bench.until(lambda: bench.runs("heard of") == 2)
        await bench.until_empty()


async def test_b149_unknown_jobs_are_claimed_a_few_times_a_second_at_most(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = 0

    @bench.queue.task
    async def known() -> None: ...

    async with bench.worker() as worker:
        (shard,) = runtime_of(worker)._shards
        plain_turn = shard.access.turn

        async def counted(settlements: Any, claim: Any, /, *, last: bool = False) -> TurnAnswer:
            nonlocal claims
            claims += claim is not None
            return await plain_turn(settlements, claim, last=last)

        monkeypatch.setattr(shard.access, "turn", counted)
        await bench.put("unknown", "unheard-of")
        await bench.until(lambda: bool(bench.told(TaskUnknown)))
        await asyncio.sleep(0.9)
        assert claims <= 3
    await bench.queue.cancel("unknown")
