"""One Redis server, or a cluster of them, as seen from one event loop: makes the stores, owns their
connections."""

from __future__ import annotations

import base64
import logging
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, cast

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.connection import AbstractConnection, parse_url
from redis.asyncio.connection import Connection as TcpConnection
from redis.asyncio.sentinel import SentinelConnectionPool

from aiodq._core.errors import ConfigError
from aiodq._core.lease import WORKER_ID_LENGTH
from aiodq._core.store import UNBOUNDED, Bounds, Notice
from aiodq._redis import cluster, sentinel
from aiodq._redis.calls import ONCE, PRODUCER, WORKER, Caller
from aiodq._redis.ears import Ears, Hearing
from aiodq._redis.identity import Identity
from aiodq._redis.keys import ShardKeys
from aiodq._redis.link import Connection, Line, Link
from aiodq._redis.resender import Resender
from aiodq._redis.reteller import Reteller
from aiodq._redis.scripts import VERSION, Scripting
from aiodq._redis.store import RedisStore
from aiodq._redis.worker_store import RedisKeeperStore, RedisWorkerStore

REPLY_TIMEOUT_S: Final = 2.0
"""How long to wait for a reply until the connection counts as broken. Calls may be repeated, so a server that
is only slow loses nothing by it; a longer time would delay recovery from a network that swallows packets."""

CONNECT_TIMEOUT_S: Final = 1.5

log = logging.getLogger("aiodq.redis")


def new_sender_id() -> str:
    """An id of the fixed width that tokens need: the layout version, then 95 random bits. Made after a fork,
    never before."""
    letters = base64.b32encode(os.urandom(12)).decode().rstrip("=").lower()
    return f"{VERSION}{letters[: WORKER_ID_LENGTH - 1]}"


def connection_maker(
    *, url: str | None = None, client: object | None = None
) -> tuple[Callable[[], Connection], float]:
    """Makes unconnected connections as the URL or the user's client describes them; also the reply timeout,
    in seconds.

    Of a client only its settings are taken: each of our connections does one duty, so none waits for a free
    one in a pool. Raises ConfigError for a URL or client that cannot serve.
    """
    if client is not None:
        kind, settings = _of_client(client)
    elif url is not None:
        kind, settings = _of_url(url)
    else:
        raise ConfigError("a Redis URL or a redis.asyncio.Redis client is needed")
    reply_timeout_s = _settle(settings)
    return _checked(lambda: cast(Connection, kind(**settings))), reply_timeout_s


def cluster_of(
    *, url: str | None = None, client: object | None = None
) -> tuple[cluster.Cluster, float] | None:
    """The cluster that the URL or the user's client leads to, and the reply timeout, in seconds; None: it
    leads to no cluster. Raises ConfigError as `connection_maker`."""
    if isinstance(client, RedisCluster):
        found = cluster.of_client(client)
        _refuse_decoding(found.settings)
    elif client is None and url is not None and url.partition("://")[0] in cluster.SCHEMES:
        found = cluster.of_url(url)
    else:
        return None
    reply_timeout_s = _settle(found.settings)
    _checked(lambda: found.make(found.seeds[0]))
    return found, reply_timeout_s


def _settle(settings: dict[str, Any]) -> float:
    """Puts what is decided here into connection settings. Gives the reply timeout, in seconds."""
    reply_timeout = settings.pop("socket_timeout", None) or REPLY_TIMEOUT_S
    settings.setdefault("socket_connect_timeout", CONNECT_TIMEOUT_S)
    for ours in (
        "retry",
        "retry_on_timeout",
        "retry_on_error",
        "health_check_interval",
        "decode_responses",
        "protocol",
    ):
        settings.pop(ours, None)
    # Repeats, deadlines and health are decided by callers here; RESP2 has what is used, on every server.
    settings.update(protocol=2, socket_timeout=None, decode_responses=False)
    return float(reply_timeout)


def _checked(make: Callable[[], Connection]) -> Callable[[], Connection]:
    try:
        make()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"these connection settings are not understood: {error}") from error
    return make


def may_fail_over(*, url: str | None = None, client: object | None = None) -> bool:
    """Whether a failover to a replica can happen behind this URL or client, as far as they show it."""
    if isinstance(client, Redis):
        return isinstance(client.connection_pool, SentinelConnectionPool)
    if isinstance(client, RedisCluster):
        return True
    return url is not None and url.partition("://")[0] in (*sentinel.SCHEMES, *cluster.SCHEMES)


def _of_url(url: str) -> tuple[type[AbstractConnection], dict[str, Any]]:
    if url.partition("://")[0] in sentinel.SCHEMES:
        return sentinel.of_url(url)
    try:
        settings = cast(dict[str, Any], dict(parse_url(url)))
    except ValueError as error:
        raise ConfigError(f"{_without_password(url)!r} is not a Redis URL: {error}") from error
    for pool_only in ("max_connections", "timeout"):
        settings.pop(pool_only, None)
    return settings.pop("connection_class", TcpConnection), settings


def _of_client(client: object) -> tuple[type[AbstractConnection], dict[str, Any]]:
    if not isinstance(client, Redis):
        raise ConfigError(f"redis= takes a redis.asyncio.Redis client, got {type(client).__name__}")
    pool = client.connection_pool
    kind: type[AbstractConnection] = pool.connection_class
    settings = dict(cast(Mapping[str, Any], pool.connection_kwargs))
    if isinstance(pool, SentinelConnectionPool):
        kind, settings = sentinel.of_pool(pool)
    _refuse_decoding(settings)
    for pooled in [name for name in settings if "maint_notifications" in name]:
        settings.pop(pooled)
    return kind, settings


def _refuse_decoding(settings: Mapping[str, Any]) -> None:
    if settings.get("decode_responses"):
        raise ConfigError(
            "the client decodes responses, and payloads are bytes: make it with decode_responses=False"
        )


def _without_password(url: str) -> str:
    scheme, sep, rest = url.partition("://")
    return f"{scheme}{sep}…@{rest.rpartition('@')[2]}" if "@" in rest else url


class Lines(Protocol):
    """The connections of one duty (producing, working, keeping) in one event loop: to one server, or to the
    nodes of a cluster that are needed."""

    def to(self, keys: ShardKeys, /) -> Line:
        """What calls of this shard are sent over."""
        ...

    def ears(self, worker_id: str) -> Hearing: ...
    async def aclose(self) -> None: ...


class _OneServer:
    """One link, for all shards."""

    def __init__(self, make: Callable[[], Connection], reply_timeout_s: float, *, identities: bool) -> None:
        self._make = make
        self._link = Link(make, reply_timeout_s=reply_timeout_s, identity=Identity() if identities else None)

    def to(self, _keys: ShardKeys, /) -> Line:
        return self._link

    def ears(self, worker_id: str) -> Hearing:
        return Ears(self._make, worker_id)

    async def aclose(self) -> None:
        await self._link.aclose()


class _Shared:
    """Connections that several shards of one worker use, closed by the last of them."""

    def __init__(self, lines: Lines, worker_id: str) -> None:
        self.lines = lines
        self.ears = lines.ears(worker_id)
        self.users = 0


class RedisBackend:
    """See `aiodq._core.store.Backend`. Made, used and closed in one event loop; makes no connection until it
    is used.

    Args:
        replays: after the server was exchanged or restarted, producers send their last enqueues again, and
            workers tell their last settlements again. None: behind Sentinels, and in a cluster.

    Raises:
        ConfigError: neither or an unusable URL or client.
    """

    def __init__(
        self,
        *,
        url: str | None = None,
        client: object | None = None,
        scripting: Scripting = "eval",
        replays: bool | None = None,
    ) -> None:
        self._replays = may_fail_over(url=url, client=client) if replays is None else replays
        self.new_lines: Final = self._maker(url, client)
        self._scripting: Scripting = scripting
        self._sender = new_sender_id()
        self._lines = self.new_lines()
        self._stores: dict[tuple[str, bool, Bounds], RedisStore] = {}
        self._shared: dict[tuple[str, str], _Shared] = {}
        self._lock = threading.Lock()  # keepers come from another thread

    def _maker(self, url: str | None, client: object | None) -> Callable[[], Lines]:
        found = cluster_of(url=url, client=client)
        if found is not None:
            nodes, timeout_s = found
            return lambda: cluster.Nodes(nodes, reply_timeout_s=timeout_s, identities=self._replays)
        make, reply_timeout_s = connection_maker(url=url, client=client)
        return lambda: _OneServer(make, reply_timeout_s, identities=self._replays)

    def store(
        self,
        queue: str,
        /,
        *,
        prefix: str = "aiodq",
        shard: int | None = None,
        fifo: bool = False,
        bounds: Bounds = UNBOUNDED,
    ) -> RedisStore:
        keys = ShardKeys(queue, prefix=prefix, shard=shard, fifo=fifo)
        store = self._stores.get((keys.base, fifo, bounds))
        if store is None:
            # The server remembers one call of a sender: the stores of one shard are senders of their own.
            shared = any(base == keys.base for base, *_ in self._stores)
            sender = new_sender_id() if shared else self._sender
            caller = Caller(self._lines.to(keys), keys, sender, self._scripting, PRODUCER)
            again = Resender(caller, keys) if self._replays else None
            store = RedisStore(self, keys, caller, again, bounds)
            self._stores[keys.base, fifo, bounds] = store
        return store

    async def layout(self, queue: str, /, *, prefix: str = "aiodq", shards: int) -> int:
        keys = ShardKeys(queue, prefix=prefix)
        caller = Caller(self._lines.to(keys), keys, self._sender, self._scripting, PRODUCER)
        return cast(int, await caller.call("layout", (shards,)).answer())

    def worker(
        self, keys: ShardKeys, worker_id: str, on_notice: Callable[[Notice], None]
    ) -> RedisWorkerStore:
        shared, close = self._share("worker", worker_id)
        link = shared.lines.to(keys)
        caller = Caller(link, keys, worker_id, self._scripting, WORKER)
        again = None
        if self._replays:
            again = Reteller(Caller(link, keys, new_sender_id(), self._scripting, WORKER), keys)
        return RedisWorkerStore(caller, keys, worker_id, shared.ears, on_notice, close, again)

    def keeper(self, keys: ShardKeys, worker_id: str) -> RedisKeeperStore:
        shared, close = self._share("keeper", worker_id)
        caller = Caller(shared.lines.to(keys), keys, worker_id, self._scripting, ONCE)
        return RedisKeeperStore(caller, keys, worker_id, close)

    def _share(self, duty: str, worker_id: str) -> tuple[_Shared, Callable[[], Any]]:
        with self._lock:
            shared = self._shared.get((duty, worker_id))
            if shared is None:
                shared = self._shared[duty, worker_id] = _Shared(self.new_lines(), worker_id)
            shared.users += 1

        async def close() -> None:
            with self._lock:
                shared.users -= 1
                if shared.users:
                    return
                self._shared.pop((duty, worker_id), None)
            await shared.lines.aclose()

        return shared, close

    async def aclose(self) -> None:
        """Closes the producers' side. Workers close what is theirs."""
        for store in self._stores.values():
            await store.aclose()
        await self._lines.aclose()
