"""Queues on real servers: several event loops, threads, forks, the user's client, the bundled server."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest
from redis.asyncio import Redis

from aiodq import ConfigError, Queue, StoreUnavailable, TaskRef
from tests.conftest import RunScript
from tests.servers import ServerProcess


def clients(server: ServerProcess) -> int:
    """Connections of this library; the one that asks is not counted."""
    with server.client() as client:
        return len(client.client_list()) - 1


async def add(task: TaskRef[..., object], queue: Queue, times: int = 50) -> int:
    await asyncio.gather(*(task.after(60).enqueue(f"A{number}") for number in range(times)))
    return (await queue.stats()).scheduled


async def clean(queue: Queue) -> None:
    for job in await queue.peek("scheduled", limit=1000):
        await queue.cancel(job.id)


def test_one_queue_in_event_loops_one_after_another_and_in_a_thread(
    valkey: ServerProcess, queue_name: str
) -> None:
    queue = Queue(queue_name, url=valkey.url)
    task = queue.stub("t")
    before = clients(valkey)
    assert asyncio.run(add(task, queue)) == 50
    assert clients(valkey) == before
    assert asyncio.run(add(task, queue)) == 100
    counts: list[int] = []

    async def beside() -> int:
        thread = threading.Thread(target=lambda: counts.append(asyncio.run(add(task, queue))))
        thread.start()
        mine = await add(task, queue)
        await asyncio.to_thread(thread.join)
        return mine

    asyncio.run(beside())
    assert counts[0] in range(150, 201)
    assert clients(valkey) == before
    asyncio.run(clean(queue))


async def test_enqueue_cancelled_in_flight_leaves_the_connection_sound(
    valkey: ServerProcess, queue_name: str
) -> None:
    async with Queue(queue_name, url=valkey.url) as queue:
        for number in range(200):
            call = asyncio.ensure_future(queue.send("t", after=60, job_id=f"x{number}"))
            await asyncio.sleep(0 if number % 2 else 0.0002)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            assert await queue.by_id(f"never{number}").status() == "absent"
        await clean(queue)


async def test_a_client_of_the_users_gives_its_settings(valkey: ServerProcess, queue_name: str) -> None:
    client = Redis.from_url(valkey.url)  # pyright: ignore[reportUnknownMemberType]
    async with Queue(queue_name, redis=client) as queue:
        assert (await queue.send("t")).created
        assert await queue.cancel((await queue.peek("scheduled"))[0].id)
    assert await client.ping()  # pyright: ignore[reportUnknownMemberType, reportGeneralTypeIssues]
    await client.aclose()


def test_a_client_of_the_users_serves_several_event_loops(valkey: ServerProcess, queue_name: str) -> None:
    queue = Queue(queue_name, redis=Redis.from_url(valkey.url))  # pyright: ignore[reportUnknownMemberType]
    task = queue.stub("t")
    assert [asyncio.run(add(task, queue, 3)), asyncio.run(add(task, queue, 3))] == [3, 6]
    asyncio.run(clean(queue))


async def test_a_server_that_is_away_is_told_in_time_and_comes_back(queue_name: str) -> None:
    queue = Queue(queue_name, url="redis://127.0.0.1:1/0")
    loop = asyncio.get_running_loop()
    before = loop.time()
    with pytest.raises(StoreUnavailable):
        await queue.send("t")
    assert loop.time() - before < 90
    await queue.aclose()


FORKS = """
import asyncio, os, sys
from aiodq import Queue

queue = Queue(sys.argv[2], url=sys.argv[1])
task = queue.stub("t")

async def use():
    sent = await asyncio.gather(*(task.after(60).enqueue() for _ in range(20)))
    assert all(job.created for job in sent)  # no process gives its jobs the ids of another's

def in_child():
    pid = os.fork()
    if pid == 0:
        try:
            asyncio.run(use())
            os._exit(0)
        finally:
            os._exit(1)
    return pid

async def parent():
    await use()
    pids = [in_child(), in_child()]
    for _ in range(3):
        await use()
    for pid in pids:
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                break
            await asyncio.sleep(0.01)
        assert status == 0, status
    await use()

asyncio.run(parent())
pid = in_child()
assert os.waitpid(pid, 0)[1] == 0

async def end():
    assert (await queue.stats()).scheduled == 160
    for job in await queue.peek("scheduled", limit=200):
        await queue.cancel(job.id)

asyncio.run(end())
print("ready", flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_connects_anew_and_disturbs_nobody(
    valkey: ServerProcess, queue_name: str, run_script: RunScript
) -> None:
    program = run_script(FORKS, valkey.url, queue_name)
    assert program.wait() == 0


def test_the_bundled_server_is_started_shared_and_its_data_stay(
    tmp_path: Path, run_script: RunScript
) -> None:
    url = f"embedded://{tmp_path}/data"
    queue, other = Queue("orders", url=url), Queue("emails", url=url)

    async def use() -> list[int]:
        async with queue:
            await asyncio.gather(*(queue.send("t", after=60) for _ in range(10)), other.send("t", after=60))
            return [(await q.stats()).scheduled for q in (queue, other)]

    assert asyncio.run(use()) == [10, 1]
    assert asyncio.run(use()) == [20, 2]
    program = run_script(
        "import asyncio, sys; from aiodq import Queue\n"
        "queue = Queue('orders', url=sys.argv[1])\n"
        "print('ready', asyncio.run(queue.stats()).scheduled)",
        url,
        ready=None,
    )
    assert program.wait_for("ready") == "ready 20"


async def test_an_embedded_server_that_cannot_start_says_why_and_may_be_tried_again(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("mine")
    queue = Queue("orders", url=f"embedded://{tmp_path}")
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"holds other files \('letter.txt'\)"):
            await queue.send("t")
    (tmp_path / "letter.txt").unlink()
    async with queue:
        assert (await queue.send("t")).created


async def test_first_uses_at_the_same_time_open_once(tmp_path: Path) -> None:
    queue = Queue("orders", url=f"embedded://{tmp_path}/data")
    sent = await asyncio.gather(*(queue.send("t", after=60) for _ in range(30)))
    assert all(job.created for job in sent)
    await queue.aclose()
    assert (await queue.stats()).scheduled == 30
    await queue.aclose()
