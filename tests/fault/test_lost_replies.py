"""Lost replies under a whole worker: no job waits for its lease, and none runs more often than asked."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import Literal

import pytest

from aiodq import Bury, Queue, Snooze, StoreUnavailable, Worker, current_job
from tests.fault.lab import rounds
from tests.fault.proxy import Proxy
from tests.servers import ServerProcess
from tests.shards import until

pytestmark = pytest.mark.slow

LEASE_S = 30.0
REPLY_TIMEOUT_S = 0.4
DONE_S = 5.0
"""Far below the lease: what a repeat needs, on a machine that may have other things to do."""

SCRIPTS = (
    *("enqueue", "replace", "cancel", "reschedule", "replay", "purge"),
    *("claim", "ack", "retry", "bury", "extend"),
)


async def all_done(queue: Queue) -> None:
    async with asyncio.timeout(LEASE_S * 2):
        while (stats := await queue.stats()).scheduled or stats.processing:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.005)


async def test_whatever_reply_is_lost_no_job_waits_for_its_lease(
    valkey: ServerProcess, queue_name: str
) -> None:
    """30 rounds (times AIODQ_FAULT_ROUNDS): each loses the reply of one script, after it took effect, by a
    cut or in silence, while four jobs with four different ends run. The buried one is replayed once."""
    dice = random.Random(17)
    runs: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    slowest_s = 0.0
    async with Proxy(valkey.port) as proxy, Queue(queue_name, url=valkey.url) as beside:
        queue = Queue(queue_name, url=proxy.patient_url(REPLY_TIMEOUT_S))

        @queue.task
        async def work(end: str) -> None:
            job = current_job()
            runs[job.id] += 1
            if end == "extend":
                try:
                    await job.extend()
                except StoreUnavailable:  # nothing is known, as it says
                    await job.extend()
            elif end == "snooze" and job.snoozes == 0:
                raise Snooze(0.01)
            elif end == "bury":
                raise Bury("as asked")

        async with queue, Worker(queue, lease=LEASE_S, grace=3):
            for n in range(rounds(30)):
                script = dice.choice(SCRIPTS)
                how: Literal["cut", "silence"] = "silence" if dice.random() < 0.3 else "cut"
                loss = proxy.lose_reply(script, how=how)
                began = time.monotonic()
                ids = {end: f"{end}-{n}" for end in ("ack", "extend", "snooze", "bury")}
                await queue.enqueue_many(
                    [work.options(job_id=job_id).after(0.01).job(end) for end, job_id in ids.items()]
                )
                later = work.options(job_id=f"later-{n}", on_duplicate="replace").after(3600)
                assert (await later.enqueue("ack")).created
                assert (await later.after(7200).enqueue("ack")).replaced
                assert await queue.reschedule(f"later-{n}", after=1800)
                assert await queue.cancel(f"later-{n}")
                await all_done(beside)
                assert (await queue.dead.replay(ids["bury"])).ids == (ids["bury"],)
                await all_done(beside)
                assert await queue.dead.purge(older_than=0) == 1
                await asyncio.wait_for(loss.happened.wait(), LEASE_S)
                took_s = time.monotonic() - began
                lost[script] += 1
                slowest_s = max(slowest_s, took_s)
                assert took_s < DONE_S, (script, how)
                assert [runs[job_id] for job_id in ids.values()] == [1, 1, 2, 2], (script, how)
        await until(lambda: not proxy._pairs)
    print(f"{sum(lost.values())} replies lost ({dict(lost)}), slowest round {slowest_s:.2f} s")
