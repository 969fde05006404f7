"""One Redis server as seen from one event loop: makes the stores, owns their connections."""

from __future__ import annotations

import base64
import logging
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection, parse_url
from redis.asyncio.connection import Connection as TcpConnection
from redis.asyncio.sentinel import SentinelConnectionPool

from aiodq._core.errors import ConfigError
from aiodq._core.lease import WORKER_ID_LENGTH
from aiodq._core.store import Notice
from aiodq._redis import sentinel
from aiodq._redis.calls import ONCE, PRODUCER, WORKER, Caller
from aiodq._redis.ears import Ears
from aiodq._redis.identity import Identity
from aiodq._redis.keys import ShardKeys
from aiodq._redis.link import Connection, Link
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

    def make() -> Connection:
        return cast(Connection, kind(**settings))

    try:
        make()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"these connection settings are not understood: {error}") from error
    return make, float(reply_timeout)


def leads_to_sentinels(*, url: str | None = None, client: object | None = None) -> bool:
    """Whether a failover to a replica can happen behind this URL or client, as far as they show it."""
    if isinstance(client, Redis):
        return isinstance(client.connection_pool, SentinelConnectionPool)
    return url is not None and url.partition("://")[0] in sentinel.SCHEMES


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
    if settings.get("decode_responses"):
        raise ConfigError(
            "the client decodes responses, and payloads are bytes: make it with decode_responses=False"
        )
    for pooled in [name for name in settings if "maint_notifications" in name]:
        settings.pop(pooled)
    return kind, settings


def _without_password(url: str) -> str:
    scheme, sep, rest = url.partition("://")
    return f"{scheme}{sep}…@{rest.rpartition('@')[2]}" if "@" in rest else url


class _Shared:
    """A link or ears that several shards of one worker use, closed by the last of them."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.users = 0


class RedisBackend:
    """See `aiodq._core.store.Backend`. Made, used and closed in one event loop; makes no connection until it
    is used.

    Args:
        replays: after the server was exchanged or restarted, producers send their last enqueues again, and
            workers tell their last settlements again. None: where Sentinels are behind the URL or client.

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
        self._make, self._reply_timeout_s = connection_maker(url=url, client=client)
        self._replays = leads_to_sentinels(url=url, client=client) if replays is None else replays
        self._scripting: Scripting = scripting
        self._sender = new_sender_id()
        self._link = self._new_link()
        self._stores: dict[str, RedisStore] = {}
        self._ears: dict[str, Ears] = {}
        self._shared: dict[tuple[str, str], _Shared] = {}
        self._lock = threading.Lock()  # keepers come from another thread

    def _new_link(self) -> Link:
        identity = Identity() if self._replays else None
        return Link(self._make, reply_timeout_s=self._reply_timeout_s, identity=identity)

    def store(self, queue: str, /, *, prefix: str = "aiodq", shard: int | None = None) -> RedisStore:
        keys = ShardKeys(queue, prefix=prefix, shard=shard)
        store = self._stores.get(keys.base)
        if store is None:
            caller = Caller(self._link, keys, self._sender, self._scripting, PRODUCER)
            again = Resender(caller, keys) if self._replays else None
            store = self._stores[keys.base] = RedisStore(self, keys, caller, again)
        return store

    def worker(
        self, keys: ShardKeys, worker_id: str, on_notice: Callable[[Notice], None]
    ) -> RedisWorkerStore:
        link, close = self._share("worker", worker_id)
        ears = self._ears.setdefault(worker_id, Ears(self._make, worker_id))
        caller = Caller(link, keys, worker_id, self._scripting, WORKER)
        again = None
        if self._replays:
            again = Reteller(Caller(link, keys, new_sender_id(), self._scripting, WORKER), keys)
        return RedisWorkerStore(caller, keys, worker_id, ears, on_notice, close, again)

    def keeper(self, keys: ShardKeys, worker_id: str) -> RedisKeeperStore:
        link, close = self._share("keeper", worker_id)
        return RedisKeeperStore(Caller(link, keys, worker_id, self._scripting, ONCE), keys, worker_id, close)

    def _share(self, duty: str, worker_id: str) -> tuple[Link, Callable[[], Any]]:
        with self._lock:
            shared = self._shared.get((duty, worker_id))
            if shared is None:
                shared = self._shared[duty, worker_id] = _Shared(self._new_link())
            shared.users += 1

        async def close() -> None:
            with self._lock:
                shared.users -= 1
                if shared.users:
                    return
                self._shared.pop((duty, worker_id), None)
                if duty == "worker":
                    self._ears.pop(worker_id, None)
            await shared.link.aclose()

        return shared.link, close

    async def aclose(self) -> None:
        """Closes the producers' side. Workers close what is theirs."""
        for store in self._stores.values():
            await store.aclose()
        await self._link.aclose()
