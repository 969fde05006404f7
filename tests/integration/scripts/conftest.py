"""`shard`: the same test on memory and on each real server, with a look at the whole state when it ends.

On servers each test runs twice: the scripts sent as such, and the same files deployed as a function library;
with `--server cluster` so too. On all of them it runs once more in a queue that is first in, first out.
Modules that define `KINDS` choose among "memory", "scripts", "functions" and "fifo".
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import pytest

from aiodq._redis.backend import RedisBackend
from aiodq._redis.scripts import Scripting
from tests.clusters import open_client
from tests.servers import SERVER_KINDS, ServerProcess
from tests.shards import ClusterShard, MemoryShard, OpenShard, RedisShard, Seeds

FUNCTIONS = " functions"
FIFO = " fifo"


@pytest.fixture
def server_of_shard(shard_kind: str, request: pytest.FixtureRequest) -> ServerProcess:
    name = shard_kind.removesuffix(FUNCTIONS).removesuffix(FIFO)
    return cast("ServerProcess", request.getfixturevalue(name)).start()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "shard_kind" in metafunc.fixturenames:
        chosen = cast("str", metafunc.config.getoption("--server"))
        servers = list(SERVER_KINDS) if chosen == "all" else [chosen]
        every = ("memory", "scripts", "functions", "fifo")
        kinds = cast("tuple[str, ...]", getattr(cast("object", metafunc.module), "KINDS", every))
        meant = {
            "memory": ["memory"],
            "scripts": servers,
            "functions": [name + FUNCTIONS for name in servers],
            "fifo": [name + FIFO for name in ("memory", *servers)],
        }
        metafunc.parametrize("shard_kind", [name for kind in kinds for name in meant[kind]])


@pytest.fixture
async def shard(request: pytest.FixtureRequest, shard_kind: str, queue_name: str) -> AsyncIterator[OpenShard]:
    """One shard. Afterwards each job has one place and its payload."""
    fifo = shard_kind.endswith(FIFO)
    if shard_kind.startswith("memory"):
        memory = MemoryShard(queue_name, fifo=fifo)
        yield memory
        await _end(request, memory)
        return
    server = cast("ServerProcess", request.getfixturevalue("server_of_shard"))
    scripting: Scripting = "functions" if shard_kind.endswith(FUNCTIONS) else "eval"
    backend = RedisBackend(url=server.url, scripting=scripting)
    kind = ClusterShard if shard_kind.startswith("cluster") else RedisShard
    store = backend.store(queue_name, fifo=fifo)
    shard = kind(store, open_client(server.url), queue_name, shard_kind, fifo=fifo)
    if fifo:
        await store.pause("")  # any first call makes the queue one that is in order
        await store.resume()
    yield shard
    await _end(request, shard)
    await shard.client.aclose()
    await backend.aclose()
    server.flush()


async def _end(request: pytest.FixtureRequest, shard: OpenShard) -> None:
    faults = (await shard.state()).faults()
    await shard.aclose()
    assert not faults, f"after {request.node}: {faults}"


@pytest.fixture
async def seeds(shard: OpenShard) -> Seeds:
    return await shard.seed()
