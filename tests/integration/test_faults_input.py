"""Times, names and values that broke other systems, with workers on real servers. Faults B01 to B31."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import cast

import pytest
import uvloop
from redis.crc import key_slot

from aiodq import PayloadError, Queue, Worker
from aiodq._core.due import MAX_DUE_MS, Due
from aiodq._core.envelope import Envelope, encode_envelope
from aiodq._core.store import Entry
from tests.clusters import servers_of
from tests.servers import ServerProcess

LAST = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)


@pytest.fixture
async def orders(server: ServerProcess, queue_name: str) -> AsyncIterator[Queue]:
    async with Queue(queue_name, url=server.url) as queue:
        yield queue
        for job in await queue.peek("scheduled", limit=10_000):
            await queue.cancel(job.id)
        await queue.dead.purge(older_than=0)


def commands(server: ServerProcess) -> int:
    count = 0
    for process in servers_of(server):
        with process.client() as client:
            stats = cast("dict[str, dict[str, int]]", client.info("commandstats"))
        names = [name.removeprefix("cmdstat_").partition("|")[0] for name in stats]
        count += sum(
            of["calls"] for name, of in zip(names, stats.values(), strict=True) if name not in _TESTS
        )
    return count


_TESTS = ("client", "cluster", "info", "replconf", "role")
"""What this look itself costs, and what a cluster's nodes say to one another."""


def keys_of(server: ServerProcess, pattern: str) -> list[bytes]:
    with server.client() as client:
        return list(cast("Iterable[bytes]", client.scan_iter(match=pattern)))


async def until(condition: Callable[[], bool], seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not within the time"
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("seconds", [-0.001, -time.time() - 1, -1e12])
async def test_b01_negative_delays_run_once_at_once_and_leave_the_server_idle(
    orders: Queue, server: ServerProcess, seconds: float
) -> None:
    ran: list[float] = []

    @orders.task
    async def note() -> None:
        ran.append(time.monotonic())

    async with Worker(orders, grace=1):
        await note.after(seconds).enqueue()
        await until(lambda: len(ran) == 1)
        await asyncio.sleep(0.2)
        before = commands(server)
        await asyncio.sleep(1)
        assert commands(server) - before < 10
    assert len(ran) == 1


FAR = [timedelta(days=25), timedelta(days=50), timedelta(days=400), timedelta(days=300 * 365)]


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_b03_b05_far_jobs_do_not_run_spin_or_deafen_a_worker_on_either_loop(
    valkey: ServerProcess, queue_name: str, factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    queue = Queue(queue_name, url=valkey.url)
    ran: list[str] = []

    @queue.task
    async def note(word: str) -> None:
        ran.append(word)

    async def use() -> None:
        sent = [await note.after(delay).enqueue("far") for delay in FAR] + [
            await note.at(LAST).enqueue("far")
        ]
        async with Worker(queue, grace=1):
            listed = await queue.peek("scheduled")
            assert [job.due_at for job in listed] == [job.due_at for job in sent]
            before, used = commands(valkey), time.process_time()
            await asyncio.sleep(2)
            assert ran == []
            assert commands(valkey) - before < 15
            assert time.process_time() - used < 0.5
            await note.after(0.05).enqueue("soon")
            await until(lambda: ran == ["soon"], 2)
        for job in sent:
            await job.cancel()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(use())


async def test_b06_aware_times_in_any_zone_are_one_instant(orders: Queue) -> None:
    task = orders.stub("t")
    when = datetime.now(UTC) + timedelta(hours=2)
    zones = [UTC, timezone(timedelta(hours=9)), timezone(timedelta(hours=-8))]
    due = {(await task.at(when.astimezone(zone)).enqueue()).due_at for zone in zones}
    assert len(due) == 1
    with pytest.raises(ValueError, match="no time zone"):
        await task.at(when.replace(tzinfo=None)).enqueue()
    with pytest.raises(ValueError, match="no time zone"):
        await orders.reschedule("x", at=when.replace(tzinfo=None))


async def test_b08_b09_the_last_instants_are_exact_on_the_server(
    orders: Queue, server: ServerProcess
) -> None:
    job = await orders.stub("t").at(LAST).enqueue()
    key = f"aiodq:{{{orders.name}}}:schedule"
    with server.client() as client:
        assert client.zscore(key, job.id) == float(MAX_DUE_MS)
    assert await job.reschedule(at=LAST - timedelta(milliseconds=1))
    with server.client() as client:
        assert client.zscore(key, job.id) == float(MAX_DUE_MS - 1)
    assert (await orders.peek("scheduled"))[0].due_at == LAST - timedelta(milliseconds=1)


async def test_b11_an_expiry_shorter_than_the_delay_counts_from_the_due_time(orders: Queue) -> None:
    ran: list[str] = []

    @orders.task
    async def note(word: str) -> None:
        ran.append(word)

    async with Worker(orders, grace=1):
        await note.options(expires=0.2).after(0.5).enqueue("a")
        await until(lambda: ran == ["a"])


async def test_b14_b20_odd_ids_run_and_are_found_everywhere(orders: Queue) -> None:
    odd = ["a:b", "a:b:c", ":", "x:lease", "a/b?c", "🦄", "{t7}x", "x" * 256, "c:1", "t:1", "%s"]
    ran: list[str] = []

    @orders.task(max_attempts=1)
    async def note(word: str) -> None:
        ran.append(word)
        raise ValueError(word)

    await orders.pause()
    for job_id in odd:
        await note.options(job_id=job_id).enqueue(job_id)
    assert {job.id for job in await orders.peek("scheduled")} == set(odd)
    await orders.resume()
    async with Worker(orders, grace=1):
        await until(lambda: len(ran) == len(odd))
        deadline = time.monotonic() + 5
        while (await orders.stats()).dead < len(odd):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
    assert {dead.id: dead.args for dead in await orders.dead.list()} == {job_id: (job_id,) for job_id in odd}
    for job_id in odd:
        assert (await orders.explain(job_id)).state == "dead"
        assert (await orders.dead.replay(job_id, after=60)).ids == (job_id,)
        assert await orders.cancel(job_id)


async def test_b17_purging_and_listing_one_queue_never_touches_another(
    server: ServerProcess, queue_name: str
) -> None:
    names = [f"{queue_name}{tail}" for tail in (".b", "xb", "b", "/b", "+b", ":b", "@b", "%2Fb")]
    queues = [Queue(name, url=server.url) for name in names]
    for number, queue in enumerate(queues, 1):
        await queue.enqueue_many(queue.stub("t").after(60).job() for _ in range(number))
    for number, queue in enumerate(queues, 1):
        assert [(await other.stats()).scheduled for other in queues[number:]] == list(
            range(number + 1, len(queues) + 1)
        )
        for job in await queue.peek("scheduled"):
            assert await queue.cancel(job.id)
        assert (await queue.stats()).scheduled == 0


async def test_b21_all_keys_of_a_queue_are_in_one_slot(server: ServerProcess, queue_name: str) -> None:
    for name, prefix in [(queue_name, "aiodq"), (f"{queue_name}:x/y", "p:a/b")]:
        queue = Queue(name, url=server.url, prefix=prefix)

        @queue.task(max_attempts=1)
        async def fail() -> None:
            raise ValueError

        await fail.enqueue()
        async with Worker(queue, grace=1):
            deadline = time.monotonic() + 5
            while not (await queue.stats()).dead:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)
            await queue.pause()
            keys = [key for key in keys_of(server, f"{prefix}:*") if f"{{{name}}}".encode() in key]
        assert len(keys) > 3
        assert {key_slot(key) for key in keys} == {key_slot(f"{{{name}}}".encode())}
        await queue.resume()
        await queue.dead.purge(older_than=0)


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    y: Decimal


async def test_b28_every_documented_type_arrives_as_it_was(orders: Queue) -> None:
    arrived: list[object] = []

    @orders.task
    async def note(
        naive: datetime,
        aware: datetime,
        day: date,
        length: timedelta,
        money: Decimal,
        key: uuid.UUID,
        colour: Colour,
        raw: bytes,
        pair: tuple[int, str],
        some: set[str],
        point: Point,
        by_number: dict[int, str],
    ) -> None:
        arrived.extend([naive, aware, day, length, money, key, colour, raw, pair, some, point, by_number])

    sent = (
        datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001
        datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=9))),
        date(2026, 1, 2),
        timedelta(seconds=1.5),
        Decimal("1.10"),
        uuid.UUID(int=7),
        Colour.RED,
        b"\0\xff",
        (1, "a"),
        {"a", "b"},
        Point(1, Decimal("0.1")),
        {1: "a"},
    )
    async with Worker(orders, grace=1):
        await note.enqueue(*sent)
        await until(lambda: bool(arrived))
    assert arrived == list(sent)
    assert [type(value) for value in arrived] == [type(value) for value in sent]


async def test_b27_arguments_of_another_deployment_are_buried_and_others_run(orders: Queue) -> None:
    ran: list[str] = []

    @orders.task
    async def note(word: str) -> None:
        ran.append(word)

    (store,) = orders._stores()
    await store.enqueue([Entry("poison", encode_envelope(Envelope(1, "note")), Due(0))])
    await note.enqueue("good")
    async with Worker(orders, grace=1):
        await until(lambda: ran == ["good"])
        deadline = time.monotonic() + 5
        while not (await orders.stats()).dead:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
    (dead,) = await orders.dead.list()
    assert dead.id == "poison"
    assert "missing a required argument: 'word'" in str(await orders.explain("poison"))


@pytest.mark.parametrize("size", [1_000_000, 60_000_000])
async def test_b31_large_payloads_below_the_limit_arrive(orders: Queue, size: int) -> None:
    arrived: list[int] = []

    @orders.task
    async def note(body: bytes) -> None:
        arrived.append(len(body))

    async with Worker(orders, grace=1):
        await note.enqueue(b"x" * size)
        await until(lambda: arrived == [size], 20)


async def test_b31_a_payload_above_the_limit_leaves_nothing(orders: Queue, server: ServerProcess) -> None:
    with pytest.raises(PayloadError, match="above the limit of 67,108,864 bytes"):
        await orders.stub("t").enqueue(b"x" * 67_108_865)
    assert keys_of(server, f"aiodq:{{{orders.name}}}*") == []
