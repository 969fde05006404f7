"""How many shards a queue has is recorded once, and callers who think otherwise are refused."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiodq._core.due import Due
from aiodq._core.errors import WrongShards
from aiodq._core.store import Backend, Entry
from aiodq._memory import MemoryBackend
from aiodq._redis.backend import RedisBackend
from aiodq._redis.scripts import Scripting
from tests.servers import ServerProcess

HOUR = Due(3_600_000)


@pytest.fixture(params=["memory", "eval", "functions"])
async def backend(request: pytest.FixtureRequest, server: ServerProcess) -> AsyncIterator[Backend]:
    if request.param == "memory":
        yield MemoryBackend()
        return
    scripting: Scripting = request.param
    backend = RedisBackend(url=server.url, scripting=scripting)
    yield backend
    await backend.aclose()
    server.flush()


async def test_the_first_number_stays(backend: Backend, queue_name: str) -> None:
    assert await backend.layout(queue_name, shards=4) == 4
    assert await backend.layout(queue_name, shards=4) == 4
    assert await backend.layout(queue_name, shards=8) == 4


async def test_prefixes_are_apart(backend: Backend, queue_name: str) -> None:
    assert await backend.layout(queue_name, shards=4) == 4
    assert await backend.layout(queue_name, prefix="shop", shards=8) == 8


async def test_a_queue_that_holds_jobs_is_not_divided(backend: Backend, queue_name: str) -> None:
    store = backend.store(queue_name)
    await store.enqueue([Entry("a", b"", HOUR)])
    assert await backend.layout(queue_name, shards=4) == 0
    assert await store.cancel(["a"]) == ["scheduled"]
    assert await backend.layout(queue_name, shards=4) == 4


async def test_who_does_not_know_of_the_shards_is_refused_and_changes_nothing(
    backend: Backend, queue_name: str
) -> None:
    await backend.layout(queue_name, shards=4)
    with pytest.raises(WrongShards, match="shards=4") as caught:
        await backend.store(queue_name).enqueue([Entry("a", b"", HOUR)])
    assert caught.value.shards == 4
    for shard in range(4):
        assert (await backend.store(queue_name, shard=shard).stats()).scheduled == 0


async def test_shards_are_apart(backend: Backend, queue_name: str) -> None:
    await backend.layout(queue_name, shards=2)
    zero, one = (backend.store(queue_name, shard=n) for n in range(2))
    await zero.enqueue([Entry("a", b"0", HOUR)])
    await one.enqueue([Entry("a", b"1", HOUR)])
    assert [f.payload for store in (zero, one) for f in await store.find(["a"])] == [b"0", b"1"]
    await zero.pause("why")
    assert (await one.stats()).paused is None
    assert await zero.cancel(["a"]) == ["scheduled"]
    assert await one.cancel(["a"]) == ["scheduled"]
