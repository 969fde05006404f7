"""From `url=` or `redis=` to an open backend: where it is read, who shares it, when it is closed."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from typing import Any, cast

import pytest
import redis as blocking
from redis.asyncio import Redis

from aiodq import ConfigError, Queue
from aiodq._api import connections
from aiodq._core.store import UNBOUNDED, Bounds, Store


class Closes:
    """A backend that counts its ends."""

    made: list[Closes]

    def __init__(self, **_: object) -> None:
        self.closed = 0
        self.loop = asyncio.get_running_loop()
        self.made.append(self)

    def store(
        self,
        queue: str,
        /,
        *,
        prefix: str = "aiodq",
        shard: int | None = None,
        fifo: bool = False,
        bounds: Bounds = UNBOUNDED,
    ) -> Store:
        del bounds
        return cast("Store", (queue, prefix, shard, fifo))

    async def aclose(self) -> None:
        await asyncio.sleep(0)
        assert asyncio.get_running_loop() is self.loop
        self.closed += 1


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch) -> list[Closes]:
    """All backends made for redis:// URLs in this test."""
    Closes.made = []
    monkeypatch.setattr("aiodq._redis.backend.RedisBackend", Closes)
    return Closes.made


def closed(backends: list[Closes]) -> list[int]:
    return [backend.closed for backend in backends]


URL = "redis://127.0.0.1:1/0"


def test_making_a_queue_connects_nothing_and_needs_no_event_loop(backends: list[Closes]) -> None:
    Queue("orders", url=URL)
    Queue("orders", url=lambda: pytest.fail("read too early"))
    assert backends == []


def test_queues_of_one_url_share_a_backend_in_each_event_loop(backends: list[Closes]) -> None:
    one, two = Queue("one", url=URL), Queue("two", url=lambda: URL, prefix="p")
    other = Queue("other", url=URL + "1")
    functions = Queue("one", url=URL, scripting="functions")

    async def use() -> None:
        for _ in range(3):
            assert await one._store() == cast("Any", ("one", "aiodq", None, False))
            assert await two._store() == cast("Any", ("two", "p", None, False))
        assert len(backends) % 3 == 1
        await other._store()
        await functions._store()

    asyncio.run(use())
    assert closed(backends) == [1, 1, 1]
    asyncio.run(use())
    assert closed(backends) == [1] * 6


def test_the_end_of_the_event_loop_closes_what_is_left(backends: list[Closes]) -> None:
    queue = Queue("orders", url=URL)

    async def use() -> None:
        await queue._store()
        assert closed(backends)[-1:] == [0]

    for _ in range(2):
        asyncio.run(use())
    thread = threading.Thread(target=lambda: asyncio.run(use()))
    thread.start()
    thread.join()
    assert closed(backends) == [1, 1, 1]


def test_async_with_counts_and_the_last_one_closes(backends: list[Closes]) -> None:
    one, two = Queue("one", url=URL), Queue("two", url=URL)

    async def use() -> None:
        async with one:
            async with two, one:
                assert len(backends) == 1
            assert closed(backends) == [0]
            await one.aclose()  # held by `async with`
            assert closed(backends) == [0]
            assert list(one._stores()) == cast("Any", [("one", "aiodq", None, False)])
        assert closed(backends) == [1]
        with pytest.raises(RuntimeError, match="queue 'one' is not open in this event loop"):
            one._stores()
        await one._store()  # later use opens again
        assert closed(backends) == [1, 0]
        await one.aclose()
        await one.aclose()
        assert closed(backends) == [1, 1]

    asyncio.run(use())
    assert closed(backends) == [1, 1]


def test_leaving_without_having_entered_is_an_error(backends: list[Closes]) -> None:
    queue = Queue("orders", url=URL)

    async def use() -> None:
        await queue._store()
        with pytest.raises(RuntimeError, match="was not entered in this event loop"):
            await queue.__aexit__()

    asyncio.run(use())


def test_nothing_of_an_ended_event_loop_is_kept(backends: list[Closes]) -> None:
    async def use() -> None:
        await Queue("orders", url=URL)._store()

    before = len(connections._opened)
    for _ in range(3):
        asyncio.run(use())
    Closes.made = []
    backends.clear()
    gc.collect()
    assert len(connections._opened) <= before


async def test_a_cancelled_task_does_not_close_what_others_use(backends: list[Closes]) -> None:
    queue = Queue("orders", url=URL)

    async def hold() -> None:
        async with queue:
            await asyncio.sleep(60)

    async with queue:
        task = asyncio.ensure_future(hold())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert closed(backends) == [0]
    assert closed(backends) == [1]


# ---- which server


async def test_the_environment_is_read_on_opening(
    backends: list[Closes], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue("orders")
    monkeypatch.delenv("AIODQ_URL", raising=False)
    monkeypatch.delenv("REDIS_URL", raising=False)
    with pytest.raises(
        ConfigError, match=r"'orders' does not know its server: pass url= .* set AIODQ_URL or REDIS_URL"
    ):
        await queue.send("t")
    monkeypatch.setenv("REDIS_URL", "redis+cluster://")
    with pytest.raises(ConfigError, match=r"redis\+cluster://'.*address or directory is missing"):
        await queue.send("t")
    monkeypatch.setenv("AIODQ_URL", URL)
    await queue._store()
    assert len(backends) == 1
    await queue.aclose()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("cluster://a:1", "url=cluster://…: expected redis://"),
        (
            "http://user:secret@x",
            "url=http://…: expected redis://, rediss:// or unix:// (Valkey too), redis+sentinel://HOST,HOST/SERVICE",
        ),
        ("127.0.0.1:6379", "url='127.0.0.1:6379': expected redis://"),
        ("", "url=''"),
        ("redis://", "the server's address or directory is missing"),
        ("embedded://", "the server's address or directory is missing"),
        ("redis://:secret@127.0.0.1:6379/jobs", "url=redis://…: expected the number of a database"),
        ("rediss://:secret/2@127.0.0.1:6379/0", "in a password, / is written %2F"),
        (7, "url=7: expected redis://"),
    ],
)
async def test_urls_that_cannot_serve_are_refused_without_showing_passwords(url: Any, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Queue("orders", url=url)
    assert says in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "secret" not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        await Queue("orders", url=lambda: url).send("t")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("client", "says"),
    [
        (blocking.Redis(), "expected a redis.asyncio.Redis or RedisCluster client"),
        ("redis://x", "expected a redis.asyncio.Redis or RedisCluster client"),
        (
            Redis(decode_responses=True),
            "the client decodes responses, and jobs are bytes: use decode_responses=False",
        ),
    ],
)
def test_clients_that_cannot_serve_are_refused_at_once(client: Any, says: str) -> None:
    with pytest.raises(ConfigError, match="redis=") as caught:
        Queue("orders", redis=client)
    assert says in str(caught.value)


def test_a_url_and_a_client_are_one_too_many() -> None:
    with pytest.raises(ConfigError, match="expected url= or redis=, not both"):
        Queue("orders", url=URL, redis=Redis())


async def test_memory_queues_of_one_name_are_one_queue_in_this_process(queue_name: str) -> None:
    one, two = (Queue("orders", url=f"memory://{queue_name}") for _ in range(2))
    other = Queue("orders", url=f"memory://{queue_name}-other")
    async with one:
        await one.send("t", after=60)
    assert (await two.stats()).scheduled == 1
    assert (await other.stats()).scheduled == 0


def test_memory_queues_serve_several_event_loops(queue_name: str) -> None:
    queue = Queue("orders", url=f"memory://{queue_name}")

    async def add() -> int:
        await queue.send("t", after=60)
        return (await queue.stats()).scheduled

    assert [asyncio.run(add()), asyncio.run(add())] == [1, 2]


def test_outside_of_an_event_loop_the_error_says_so() -> None:
    coroutine = Queue("orders", url="memory://").send("t")
    with pytest.raises(RuntimeError, match="no running event loop"):
        coroutine.send(None)


def test_the_front_door_imports_no_redis() -> None:
    program = "import sys, aiodq, aiodq.types; sys.exit('redis' in sys.modules or 'argparse' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("end", ["", "/", "/3", "/3/", "?db=3", "/3?protocol=3"])
def test_a_database_is_a_number_or_is_left_out(end: str) -> None:
    Queue("orders", url=f"redis://:pa%2Fss@127.0.0.1:6379{end}")
