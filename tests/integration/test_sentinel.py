"""A queue behind Sentinels: URLs and clients, and a failover under way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from functools import partial
from pathlib import Path

import pytest
import redis.asyncio.sentinel

from aiodq._core.due import Due
from aiodq._core.errors import ConfigError, StoreUnavailable
from aiodq._core.settlement import Acked
from aiodq._core.store import ClaimRequest, Entry, Notice
from aiodq._redis import sentinel
from aiodq._redis.backend import RedisBackend, connection_maker, new_sender_id
from tests.conftest import require_server
from tests.sentinels import SERVICE, SentinelSet, sentinel_client
from tests.servers import wait_until


@pytest.fixture(scope="module")
def sentinels(server_directory: Path) -> Iterator[SentinelSet]:
    require_server("valkey")
    group = SentinelSet(server_directory / "sentinels")
    try:
        yield group.start()
    finally:
        group.stop()


async def test_producer_worker_and_keeper_go_on_by_themselves_after_a_failover(
    sentinels: SentinelSet, queue_name: str
) -> None:
    backend = RedisBackend(url=sentinels.url)
    store = backend.store(queue_name)
    notices: list[Notice] = []
    worker_id = new_sender_id()
    worker, keeper = store.worker(worker_id, notices.append), store.keeper(worker_id)
    ears = asyncio.create_task(worker.listen())
    await store.enqueue([Entry("before", b"", Due(0))])
    turn = await worker.turn([], ClaimRequest(want=10, lease_ms=30_000))
    assert turn.claim is not None
    (lease,) = turn.claim.leases
    assert await keeper.extend([(lease.job_id, lease.token)], lease_ms=30_000) == [True]
    await asyncio.to_thread(wait_until, lambda: sentinels.in_step() == 2)
    heard = len(notices)

    await asyncio.to_thread(sentinels.fail_over)

    assert (await store.enqueue([Entry("after", b"", Due(0))]))[0].created
    with contextlib.suppress(StoreUnavailable):  # it tries once; its loop tries on
        await keeper.extend([(lease.job_id, lease.token)], lease_ms=30_000)
    assert await keeper.extend([(lease.job_id, lease.token)], lease_ms=30_000) == [True]
    turn = await worker.turn([Acked(lease.job_id, lease.token)], ClaimRequest(want=10, lease_ms=30_000))
    assert turn.settled == [True]
    assert turn.claim is not None
    assert [given.job_id for given in turn.claim.leases] == ["after"]
    await asyncio.to_thread(wait_until, lambda: Notice("connected") in notices[heard:])

    ears.cancel()
    await asyncio.wait([ears])
    await keeper.aclose()
    await worker.aclose()
    await backend.aclose()


async def test_a_users_own_client_leads_to_the_master(sentinels: SentinelSet, queue_name: str) -> None:
    client = sentinel_client(sentinels)
    backend = RedisBackend(client=client)
    await backend.store(queue_name).enqueue([Entry("a", b"", Due(60_000))])
    with sentinels.master().client() as plain:
        assert plain.zscore(f"aiodq:{{{queue_name}}}:schedule", "a")
    await backend.aclose()
    await client.aclose()


def test_a_replicas_client_is_refused() -> None:
    sentinel_of_redis = redis.asyncio.sentinel.Sentinel([("127.0.0.1", 1)])  # type: ignore[no-untyped-call]
    client = sentinel_of_redis.slave_for(SERVICE)
    with pytest.raises(ConfigError, match="master_for"):
        RedisBackend(client=client)


async def test_unreachable_sentinels_are_named() -> None:
    backend = RedisBackend(url="redis+sentinel://127.0.0.1:1,127.0.0.1:2/shop/0")
    with pytest.raises(
        StoreUnavailable, match=r"none of the Sentinels 127\.0\.0\.1:1, 127\.0\.0\.1:2 .*'shop'"
    ):
        await backend.store("q").enqueue([Entry("a", b"", Due(0))])
    await backend.aclose()


def bulk(*texts: str) -> bytes:
    """A reply of the protocol: an array of strings."""
    return b"".join([b"*%d\r\n" % len(texts), *(b"$%d\r\n%s\r\n" % (len(t), t.encode()) for t in texts)])


@contextlib.asynccontextmanager
async def told(*answers: bytes) -> AsyncGenerator[sentinel.Master]:
    """Who is master, by Sentinels that give these answers to whatever comes; `b""`: one that says nothing."""

    talks: set[asyncio.Task[None] | None] = set()

    async def converse(answer: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.add(asyncio.current_task())
        while (asked := await reader.read(4096)) and not asked.endswith(b"mymaster\r\n"):
            writer.write(b"+OK\r\n" * asked.count(b"*"))  # redis-py introduces itself
        if answer:
            writer.write(answer)
        await reader.read()
        writer.close()
        await writer.wait_closed()

    async with contextlib.AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(
                await asyncio.start_server(partial(converse, answer), "127.0.0.1", 0)
            )
            for answer in answers
        ]
        addresses = [server.sockets[0].getsockname()[:2] for server in servers]
        yield sentinel.Master(addresses, "mymaster", {})
        await asyncio.gather(*filter(None, talks))


OLD = bulk("10.0.0.9", "6379") + bulk("name", "mymaster", "config-epoch", "7")
NEW = bulk("10.0.0.1", "6379") + bulk("config-epoch", "8", "name", "mymaster")
DISCREET = bulk("10.0.0.5", "6379") + b"-NOPERM no right to SENTINEL MASTER\r\n"
SILENT = b""
UNKNOWING = b"*-1\r\n-ERR No such master with that name\r\n"


@pytest.mark.parametrize(
    ("answers", "host"),
    [
        ((OLD, NEW, SILENT), "10.0.0.1"),
        ((NEW, SILENT, OLD), "10.0.0.1"),
        ((NEW, UNKNOWING, OLD), "10.0.0.1"),
        ((DISCREET, SILENT, OLD), "10.0.0.9"),
        ((DISCREET, SILENT, SILENT), "10.0.0.5"),
        ((DISCREET,), "10.0.0.5"),
    ],
)
async def test_the_sentinel_that_knows_of_the_latest_election_is_believed(
    answers: tuple[bytes, ...], host: str
) -> None:
    async with told(*answers) as master:
        assert await master.find() == (host, 6379)


async def test_sentinels_that_name_nobody_are_an_error() -> None:
    async with told(UNKNOWING, SILENT) as master:
        with pytest.raises(ConnectionError, match="none of the Sentinels"):
            await master.find()


def test_the_parts_of_a_url() -> None:
    kind, settings = sentinel.of_url(
        "rediss+sentinel://me:p%40ss@a,b:7000,[::1]:7001/shop/3?sentinel_password=s&socket_timeout=4&ssl_cert_reqs=none"
    )
    master = settings.pop("master")
    assert kind is sentinel._ToMasterOverTls
    assert settings == {
        "username": "me",
        "password": "p@ss",
        "db": 3,
        "socket_timeout": 4.0,
        "ssl_cert_reqs": "none",
    }
    assert master.service == "shop"
    assert master._addresses == [("a", 26379), ("b", 7000), ("::1", 7001)]
    assert master._settings["password"] == "s"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis+sentinel://host:26379", "needs hosts and a service"),
        ("redis+sentinel:///shop/0", "needs hosts and a service"),
        ("redis+sentinel://host:x/shop", "no host:port"),
        ("redis+sentinel://host/shop/first", "not a number"),
        ("redis+sentinel://host/shop?colour=red", "colour"),
    ],
)
def test_wrong_urls_are_refused_with_the_reason(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        connection_maker(url=url)
