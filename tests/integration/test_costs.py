"""What jobs and waiting cost, counted: commands, script calls, element operations, bytes.

None of this depends on the machine's speed, so it guards in ordinary tests what `benchmarks/` measures. The
limits are those of the design: a change that needs more has to say why.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
import redis
import redis.asyncio

from aiodq import Queue, Worker
from aiodq._core.store import BATCH, ClaimRequest
from aiodq._redis.backend import RedisBackend, new_sender_id
from aiodq._redis.keys import ShardKeys
from aiodq._worker.running import Run
from tests.conftest import MakeServer
from tests.monitor import Monitor
from tests.servers import ServerKind, ServerProcess

JOBS = 1000
SENT_PER_JOB = 0.03
INSIDE_PER_JOB = 1.5
OPERATIONS_PER_JOB = 11
LONE_INSIDE = 44
"""Enqueue 9 (two of them to wake the worker), claim 24, ack 11 (presence included in both)."""

BYTES_PER_JOB = {"redis7": 330, "valkey": 280}
IDLE_COMMANDS = {1: 0.2, 4: 0.5, 100: 1.0}
PING_S = 30.0
"""How often a worker with a seat tries its subscriber connection; at most two have one."""

_ELEMENTS: dict[str, Callable[[int, int], float]] = {
    # How many elements commands touch, by how many arguments (keys among them) and commands there were.
    "ZADD": lambda arguments, commands: (arguments - commands) / 2,
    "HSET": lambda arguments, commands: (arguments - commands) / 2,
    "HSETNX": lambda _, commands: commands,
    "ZREMRANGEBYRANK": lambda _, __: JOBS,  # each job leaves the schedule once
    "ZREM": lambda arguments, commands: arguments - commands,
    "HDEL": lambda arguments, commands: arguments - commands,
    "HMGET": lambda arguments, commands: arguments - commands,
}


class Shop:
    """A queue with one empty handler, and a client to look at its keys."""

    def __init__(self, server: ServerProcess, name: str) -> None:
        self.server = server
        self.port = server.port  # what is counted here is counted on one server
        self.queue = Queue(name, url=server.url)
        self.ran = 0
        self.keys = ShardKeys(name)
        self.client = server.client()
        self.client.ping()  # its connection's first words are over

        async def noop(value: object) -> None:
            self.ran += 1

        self.task = self.queue.task(noop)

    def monitor(self) -> Monitor:
        return Monitor("127.0.0.1", self.port)

    async def settled(self, ran: int) -> None:
        """Until so many have run and been acked."""
        deadline = time.monotonic() + 30
        while self.ran < ran or self.client.exists(self.keys.named("lease")):
            assert time.monotonic() < deadline, f"{self.ran} of {ran} jobs have run"
            await asyncio.sleep(0.02)

    async def deploy(self) -> None:
        """Makes the server know every script that a job needs."""
        await self.task.enqueue(0)
        await self.settled(1)
        self.ran = 0


@pytest.fixture
async def shop(server: ServerProcess, queue_name: str) -> AsyncIterator[Shop]:
    shop = Shop(server, queue_name)
    async with shop.queue:
        yield shop
    shop.client.close()


def sent(monitor: Monitor) -> int:
    """Commands of aiodq; `EXISTS` is what the test itself asks."""
    return monitor.sent.total() - monitor.sent["EXISTS"]


async def test_a_loaded_queue_sends_few_commands_and_touches_few_elements(shop: Shop) -> None:
    async with Worker(shop.queue):
        await shop.deploy()
        await asyncio.sleep(0.1)
        with shop.monitor() as monitor:
            due = datetime.now(UTC) + timedelta(seconds=3)  # one moment for all, so that batches are full
            await shop.queue.enqueue_many([shop.task.at(due).job(n) for n in range(JOBS)])
            await shop.settled(JOBS)

    assert sent(monitor) / JOBS <= SENT_PER_JOB + 0.003, monitor.sent  # a look before, and one after
    assert monitor.sent["EVALSHA"] == sent(monitor), monitor.sent
    assert monitor.inside.total() / JOBS <= INSIDE_PER_JOB, monitor.inside

    counted = {
        name: count(monitor.arguments[name], monitor.inside[name]) for name, count in _ELEMENTS.items()
    }
    elements = sum(counted.values()) + JOBS  # each job is read from the schedule once, by ZRANGEBYSCORE
    assert elements / JOBS <= OPERATIONS_PER_JOB * 1.02, (counted, monitor.inside)
    assert elements / JOBS > OPERATIONS_PER_JOB * 0.9, "the count misses something"


async def test_a_batch_is_one_script_call_and_100_awaiters_share_calls(shop: Shop) -> None:
    await shop.task.after(3600).enqueue(0)
    with shop.monitor() as bulk:
        await shop.queue.enqueue_many([shop.task.after(3600).job(n) for n in range(1000)])
    with shop.monitor() as awaiters:
        await asyncio.gather(*(shop.task.after(3600).enqueue(n) for n in range(100)))
    shop.server.flush()

    assert sent(bulk) == bulk.sent["EVALSHA"] == 10
    assert sent(awaiters) <= 2
    assert awaiters.inside["HSETNX"] == 100


async def test_a_lone_job_costs_three_script_calls(shop: Shop) -> None:
    async with Worker(shop.queue):
        await shop.deploy()
        await asyncio.sleep(0.1)
        lone = 5
        with shop.monitor() as monitor:
            for n in range(1, lone + 1):
                await shop.task.enqueue(n)
                await shop.settled(n)
                await asyncio.sleep(0.05)

    assert sent(monitor) == monitor.sent["EVALSHA"] == 3 * lone, monitor.sent
    assert monitor.inside.total() / lone <= LONE_INSIDE, monitor.inside


async def test_bytes_per_scheduled_job(
    make_server: MakeServer, server_kind: ServerKind, queue_name: str
) -> None:
    if str(server_kind) == "cluster":
        pytest.skip("counted on one server")
    count = 10_000
    server = make_server("--appendonly", "no", kind=server_kind)
    queue = Queue(queue_name, url=server.url)

    @queue.task
    async def pad(text: str) -> None: ...

    async with queue:
        with server.client() as client:
            await pad.after(3600).enqueue("x" * 100)
            before = _used(client)
            await queue.enqueue_many([pad.after(3600).job("x" * 100) for _ in range(count)])
            after = _used(client)
    assert (after - before) / count <= BYTES_PER_JOB[server_kind]


def _used(client: redis.Redis) -> int:
    return int(cast("dict[str, int]", client.info("memory"))["used_memory"])


async def test_runs_leave_nothing_that_only_the_garbage_collector_finds(shop: Shop) -> None:
    """A circle for each run cost more than the rest of the worker's bookkeeping on Python 3.11."""
    gc.collect()
    gc.disable()
    try:
        async with Worker(shop.queue):
            await shop.queue.enqueue_many([shop.task.job(n) for n in range(5 * BATCH)])
            await shop.settled(5 * BATCH)
            left = await _left(Run, BATCH)
    finally:
        gc.enable()
    assert len(left) <= BATCH, "the last turn's may still be at hand"


async def _left(kind: type[object], at_most: int) -> list[object]:
    """What is still there of that type, after a while that is enough for the last turn to be forgotten."""
    left: list[object] = []
    for _ in range(40):
        await asyncio.sleep(0.05)
        left = [kept for kept in gc.get_objects() if isinstance(kept, kind)]
        if len(left) <= at_most:
            break
    return left


@pytest.mark.parametrize("workers", [1, 4])
async def test_idle_workers_are_silent_and_plan_few_looks(shop: Shop, workers: int) -> None:
    await shop.queue.enqueue_many([shop.task.after(3600).job(n) for n in range(1000)])
    started = [Worker(shop.queue) for _ in range(workers)]
    for worker in started:
        await worker.__aenter__()
    await asyncio.sleep(1.0)  # the last of them to come makes others move their looks
    now_ms = time.time() * 1000
    plans = cast(
        "list[tuple[bytes, float]]", shop.client.zrange(shop.keys.named("idle"), 0, -1, withscores=True)
    )
    with shop.monitor() as monitor:
        await asyncio.sleep(2.0)
    for worker in started:
        await worker.__aexit__(None, None, None)
    shop.server.flush()

    assert len(plans) == workers
    # Between two looks nothing is sent, and each look plans the next as far ahead as this one.
    assert sent(monitor) == 0, monitor.sent
    looks = sum(1 / ((plan - now_ms) / 1000 + 1.0) for _, plan in plans)
    assert looks + min(workers, 2) / PING_S <= IDLE_COMMANDS[workers]


async def test_a_hundred_idle_workers_plan_less_than_one_look_a_second(
    server: ServerProcess, queue_name: str
) -> None:
    """On the store itself: a hundred claims in a row, by workers whose channels are heard."""
    keys, ids = ShardKeys(queue_name), [new_sender_id() for _ in range(100)]
    backend = RedisBackend(url=server.url)
    store = backend.store(queue_name)
    hands = [store.worker(one, lambda _: None) for one in ids]
    async with redis.asyncio.Redis(port=server.port) as client, client.pubsub() as ears:
        await ears.subscribe(*(keys.wake + one for one in ids))
        for _ in ids:
            await ears.get_message(timeout=5)
        answers = [
            (await hand.turn([], ClaimRequest(want=1, lease_ms=30_000, far=1.0 + n / 100))).claim
            for n, hand in enumerate(hands)
        ]
    for hand in hands:
        await hand.aclose()
    await backend.aclose()
    server.flush()

    waits_s = [
        answer.wait_us / 1e6 for answer in answers if answer is not None and answer.wait_us is not None
    ]
    assert len(waits_s) == 100
    # Those that came first knew of few others; from their second look on all plan like the last ones.
    seated, far = waits_s[:2], waits_s[-25:]
    looks = sum(1 / wait for wait in seated) + 98 * sum(1 / wait for wait in far) / len(far)
    assert looks + 2 / PING_S <= IDLE_COMMANDS[100]


async def test_a_due_job_wakes_few_of_many_idle_workers(shop: Shop) -> None:
    jobs = 6
    started = [Worker(shop.queue) for _ in range(10)]
    for worker in started:
        await worker.__aenter__()
    await shop.deploy()
    await asyncio.sleep(0.5)
    with shop.monitor() as monitor:
        await shop.queue.enqueue_many([shop.task.after(0.4 * n).job(n) for n in range(1, jobs + 1)])
        await shop.settled(jobs)
        await asyncio.sleep(0.3)
    for worker in started:
        await worker.__aexit__(None, None, None)

    # Claim, ack, one empty look of the second seat, and now and then somebody's own look.
    assert sent(monitor) / jobs <= 4, monitor.sent
