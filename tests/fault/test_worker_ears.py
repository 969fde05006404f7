"""A worker whose subscriber connection is dead without anybody having told it, while its calls go on."""

from __future__ import annotations

import asyncio

import pytest

from aiodq import Queue, Worker
from aiodq._redis import ears
from tests.conftest import MakeServer
from tests.fault.proxy import Proxy
from tests.servers import ServerProcess
from tests.shards import until


def forget_ears(proxy: Proxy) -> None:
    """As a router that forgets a quiet connection: the server's end goes away, the client is not told."""
    for pair in list(proxy._pairs):
        if pair._subscriber:
            pair.lose_server()


async def test_a_deaf_worker_subscribes_again(valkey: ServerProcess, queue_name: str) -> None:
    """Its claims say so; nothing else would ever."""
    begun = asyncio.Event()
    async with Proxy(valkey.port) as proxy:
        queue = Queue(queue_name, url=proxy.url)

        @queue.task
        async def note() -> None:
            begun.set()

        async with queue, Worker(queue, lease=30, grace=1):
            await note.after(0.3).enqueue()
            before = proxy.stats.commands["subscribe"]
            forget_ears(proxy)
            await begun.wait()
            await until(lambda: proxy.stats.commands["subscribe"] > before)
            await asyncio.sleep(0.2)
            stats = await queue._stores()[0].stats()
            assert stats.idle == 1  # it holds its seat again
            claims = proxy.stats.commands["claim"]
            await asyncio.sleep(2.5)
            assert proxy.stats.commands["claim"] <= claims + 1  # it is not polling any more


async def test_a_full_worker_tries_its_ears(
    valkey: ServerProcess, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no reason to claim, and would be taken for dead while it runs its job."""
    monkeypatch.setattr(ears, "PING_S", 0.5)
    monkeypatch.setattr(ears, "PONG_S", 0.2)
    gate, begun = asyncio.Event(), asyncio.Event()
    async with Proxy(valkey.port) as proxy:
        queue = Queue(queue_name, url=proxy.url)

        @queue.task
        async def wait() -> None:
            begun.set()
            await gate.wait()

        async with queue, Worker(queue, concurrency=1, lease=30, grace=1):
            await wait.enqueue()
            await begun.wait()
            await asyncio.sleep(0.2)
            before = proxy.stats.commands["subscribe"]
            forget_ears(proxy)
            await until(lambda: proxy.stats.commands["subscribe"] > before)
            gate.set()


async def test_a_worker_without_the_right_to_subscribe_says_so_once(
    make_server: MakeServer, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    server, done = make_server(), asyncio.Event()
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "default", "resetchannels")
    queue = Queue(queue_name, url=server.url)

    @queue.task
    async def note() -> None:
        done.set()

    async with queue, Worker(queue, lease=30, grace=1):
        await note.enqueue()
        await asyncio.wait_for(done.wait(), 3)
        await asyncio.sleep(1.5)
    told = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.getMessage()[:10] for record in told] == ["no notices"]
