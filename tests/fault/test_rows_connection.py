"""Faults of connections and of their number (docs/faults.md), with whole workers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator

import pytest
import redis.asyncio

from aiodq import Queue, Worker, current_job
from aiodq.events import Event, JobSettled, LeaseMissed
from tests.conftest import MakeServer, RunScript
from tests.fault.lab import rounds
from tests.fault.line import PATIENCE_S, Line, open_line
from tests.servers import ServerProcess
from tests.shards import until


@pytest.fixture
async def line(valkey: ServerProcess, queue_name: str) -> AsyncIterator[Line]:
    async with open_line(valkey, queue_name) as line:
        yield line


async def test_b80_work_goes_on_after_five_drops_in_two_seconds(line: Line) -> None:
    for n in range(rounds(2)):
        for _ in range(5):
            line.proxy.cut()
            await asyncio.sleep(0.4)
        await line.put(f"j{n}")
        await line.started(f"j{n}", within_s=5)


async def test_b82_killed_connections_and_a_server_stopped_for_a_while_keep_every_job(
    make_server: MakeServer, queue_name: str
) -> None:
    """Jobs due before, during and after the outage; the waiting ones are persisted."""
    server = make_server()
    async with open_line(server, queue_name) as line:
        with server.client() as client:
            client.execute_command("CLIENT", "KILL", "SKIPME", "yes")
        await line.put("killed")
        await line.started("killed", within_s=5)
        for name, after_s in (("overdue", 0.5), ("later", 3.5)):
            await line.put(name, after_s=after_s)
        began = time.monotonic()
        server.stop()
        await asyncio.sleep(2.0 * rounds(1))
        await asyncio.to_thread(server.start)
        back = time.monotonic()
        await line.started("overdue", within_s=2)
        await line.started("later")
        assert line.starts[1][0] == "overdue"
        due = max(began + 3.5, back)
        assert due - 0.1 <= line.starts[2][1] <= due + 2
    assert [line.runs(name) for name in ("killed", "overdue", "later")] == [1, 1, 1]


async def test_b85_a_cut_link_leaves_handlers_alone_and_the_lease_decides(
    line: Line, valkey: ServerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """For half a lease: nothing happens. For three: another may have the job by then, and then keeps it."""
    await line.put("short", 2.0)
    await line.started("short")
    line.proxy.refuse = True
    line.proxy.cut()
    await asyncio.sleep(0.5)
    line.proxy.refuse = False
    await line.ended()
    assert [event.outcome for event in line.events if isinstance(event, JobSettled)] == ["ack"]

    await line.put("long", 5.0)
    await line.started("long")
    line.proxy.refuse = True
    line.proxy.cut()
    other = Queue(line.beside.name, url=valkey.url)
    taken = asyncio.Event()

    @other.task
    async def work(seconds: float) -> None:
        taken.set()
        await asyncio.sleep(1)

    async with other, Worker(other, lease=1, grace=3):
        await asyncio.wait_for(taken.wait(), PATIENCE_S)
        line.proxy.refuse = False
        await until(lambda: any(isinstance(event, LeaseMissed) for event in line.events), PATIENCE_S)
        await line.ended()
    await line.put("after")
    await line.started("after")
    assert [line.runs(name) for name in ("short", "long", "after")] == [1, 1, 1]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


IDLE = """
import asyncio, sys
from aiodq import Queue, Worker

queue = Queue(sys.argv[1], url=sys.argv[2])

@queue.task
async def work(n: int) -> None:
    print(f"ran {n}", flush=True)

async def main() -> None:
    async with Worker(queue, lease=1, grace=1):
        for n in range(2):
            await work.after(0.1).enqueue(n)  # planned, so that the worker sleeps until then
            await asyncio.sleep(2.3)

if sys.argv[3] == "uvloop":
    import uvloop
    uvloop.run(main())
else:
    asyncio.run(main())
print("left", flush=True)
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_b88_connections_closed_by_the_server_while_idle_are_opened_again(
    make_server: MakeServer,
    queue_name: str,
    run_script: RunScript,
    loop: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    server = make_server("--timeout", "1")
    script = run_script(IDLE, queue_name, server.url, loop, ready=None)
    assert await asyncio.to_thread(script.wait) == 0
    assert script.lines == ["ran 0", "ran 1", "left"]
    assert capfd.readouterr().err == ""


async def test_b102_with_a_pool_of_two_no_renewal_and_no_settlement_waits(
    valkey: ServerProcess, queue_name: str
) -> None:
    """The client's settings are used, not its pool: a worker has one connection for each duty, shared."""
    events: list[Event] = []
    runs: list[str] = []
    client = redis.asyncio.Redis(host="127.0.0.1", port=valkey.port, max_connections=2)
    async with Queue(queue_name, redis=client) as queue:

        @queue.task
        async def work() -> None:
            runs.append(current_job().id)
            await asyncio.sleep(1)

        async with Worker(queue, concurrency=100, lease=0.4, grace=3, listeners=[events.append]):
            await asyncio.gather(*(work.enqueue() for _ in range(200)))
            await until(lambda: sum(isinstance(e, JobSettled) for e in events) == 200, PATIENCE_S)
    assert len(runs) == len(set(runs)) == 200
    assert not [event for event in events if isinstance(event, LeaseMissed)]
    await client.aclose()


async def test_b89_a_burst_of_producers_goes_on_after_an_outage_on_one_connection(
    make_server: MakeServer, queue_name: str
) -> None:
    server = make_server()
    async with open_line(server, queue_name) as line:
        await line.put("before")
        await line.ended()
        server.stop()
        task = line.beside.stub("work")
        calls = [asyncio.create_task(task.enqueue(0.0)) for _ in range(50)]
        await asyncio.sleep(0.5)
        await asyncio.to_thread(server.start)
        assert all(job.created for job in await asyncio.gather(*calls))
        await line.ended()
        with server.client() as client:
            # Two queues' producers share nothing here; a worker's calls, keeper, subscriber; this client.
            assert len(client.client_list()) <= 6
