"""From a queue's `url=` or `redis=` to an open backend: one for each (event loop, server), shared by its
queues.

Making a queue connects nothing. The first use in an event loop opens a backend there, and the loop's end
closes it: an async generator is kept for each, and `asyncio.run` (and anyio, uvloop, pytest plugins)
closes the loop's generators last of all. `async with queue` counts users besides: the last one out
closes. Later use opens again.

A child process made by a fork starts without any: the parent's objects are kept in the child, but never
used or closed there, because sockets and the loop's selector are shared with the parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import re
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from aiodq._api.shards import ShardedStore
from aiodq._core.errors import ConfigError, WrongShards
from aiodq._core.sharding import MAX_SHARDS
from aiodq._core.store import UNBOUNDED, Backend, Bounds, QueueStore, Store
from aiodq._memory.backend import MemoryBackend

if TYPE_CHECKING:
    from aiodq.embedded import EmbeddedServer

Scripting: TypeAlias = Literal["eval", "functions"]
Url: TypeAlias = str | Callable[[], str]

URL_VARIABLES: Final = ("AIODQ_URL", "REDIS_URL")
"""Read in this order when a queue has neither `url=` nor `redis=`."""

_REDIS_SCHEMES: Final = (
    *("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel"),
    *("redis+cluster", "rediss+cluster"),
)
_DATABASE: Final = re.compile(r"/?\d*/?")
"""The path of a Redis URL. redis-py would take any other for database 0, without a word."""


class RedisClient(Protocol):
    """What is asked of a client given as `redis=`: to be a `redis.asyncio.Redis` or a
    `redis.asyncio.RedisCluster`. Its settings are used, not its connections, so it may belong to any event
    loop.
    """

    async def aclose(self) -> None: ...


class Opened:
    """A backend that is open in one event loop.

    `users`: how many `async with` hold it. `is_open` turns false when it is closed, and in a forked child.
    """

    __slots__ = ("_ender", "_forget", "_server", "agreed", "backend", "is_open", "users")

    def __init__(
        self, backend: Backend, server: EmbeddedServer | None, forget: Callable[[Opened], None]
    ) -> None:
        self.backend = backend
        self.agreed: set[tuple[str, str, int]] = set()
        """Queues whose layout was asked for here: prefix, name, shards."""
        self._forget = forget
        self.users = 0
        self.is_open = True
        self._server = server
        self._ender = self._closes_at_its_end()
        # Runs up to its `yield` without waiting; by this first step the event loop gets to know it.
        with contextlib.suppress(StopIteration):
            self._ender.__anext__().send(None)

    async def aclose(self) -> None:
        await self._ender.aclose()

    async def _closes_at_its_end(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self.is_open = False
            self._forget(self)
            try:
                await self.backend.aclose()
            finally:
                if self._server is not None:
                    _stop_using(self._server)


_Key: TypeAlias = tuple[object, str]
_Loop: TypeAlias = asyncio.AbstractEventLoop

_opened: WeakKeyDictionary[_Loop, dict[_Key, Opened]] = WeakKeyDictionary()
_memories: dict[str, MemoryBackend] = {}
_servers: dict[str, tuple[EmbeddedServer, int]] = {}
_lock = threading.Lock()  # queues may be used in several threads, each with a loop of its own
_before_fork: list[object] = []


def _after_fork() -> None:
    global _lock  # noqa: PLW0603  (it may have been held by a thread that the child does not have)
    _lock = threading.Lock()
    for loop, by_key in list(_opened.items()):
        _before_fork.append((loop, dict(by_key)))
        for opened in by_key.values():
            opened.is_open = False
    _opened.clear()
    _before_fork.append(dict(_servers))
    _servers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Connections:
    """One queue's way to its server, in every event loop that uses the queue."""

    def __init__(
        self,
        queue: str,
        *,
        prefix: str,
        url: Url | None,
        client: RedisClient | None,
        scripting: Scripting,
        fifo: bool,
        shards: int,
        bounds: Bounds = UNBOUNDED,
    ) -> None:
        if url is not None and client is not None:
            raise ConfigError(f"queue {queue!r}: expected url= or redis=, not both")
        if scripting not in ("eval", "functions"):
            raise ConfigError(f'queue {queue!r}: scripting={scripting!r}: expected "eval" or "functions"')
        if not isinstance(cast("object", fifo), bool):
            raise ConfigError(f"queue {queue!r}: fifo={fifo!r}: expected True or False")
        if isinstance(cast("object", shards), bool) or not isinstance(cast("object", shards), int):
            raise ConfigError(f"queue {queue!r}: shards={shards!r}: expected a whole number")
        if not 1 <= shards <= MAX_SHARDS:
            raise ConfigError(f"queue {queue!r}: shards={shards}: expected 1 to {MAX_SHARDS}")
        if client is not None:
            _check_client(client)
        elif url is not None and not callable(url):
            _check_url(url)
        self._queue = queue
        self._prefix = prefix
        self._bounds = bounds
        self._url = url
        self._client = client
        self._scripting: Scripting = scripting
        self._fifo = fifo
        self.shards: Final = shards
        self._layout = prefix, queue, shards
        self._last: tuple[_Loop, Opened, QueueStore] | None = None
        self._held: WeakKeyDictionary[_Loop, list[Opened]] = WeakKeyDictionary()

    def ready(self) -> QueueStore | None:
        """The store, if it is open in the running event loop, and its layout is known to be ours."""
        last, loop = self._last, asyncio.get_running_loop()
        if last is not None and last[1].is_open and last[0] is loop:
            return last[2] if self._is_agreed(last[1]) else None
        # Used in another thread's loop meanwhile: what is held in this one is open here all the same.
        held = self._held.get(loop)
        if held and held[-1].is_open and self._is_agreed(held[-1]):
            return self._remember(held[-1])
        return None

    async def store(self) -> QueueStore:
        """The store in the running event loop, opened if need be.

        Raises:
            ConfigError: the URL is missing or not understood, or the queue has another number of shards.
            StoreUnavailable: the embedded server does not start, or the layout of a queue with shards
                cannot be asked for.
        """
        ready = self.ready()
        if ready is not None:
            return ready
        opened = await self._open()
        if not self._is_agreed(opened):
            await self._agree(opened)
        return self._remember(opened)

    def parts(self) -> Sequence[Store]:
        """The shards' stores, for a worker, where the queue is open in the running event loop.

        Raises:
            RuntimeError: it is not, or its layout was not asked for yet.
        """
        if self.ready() is None or self._last is None:
            raise RuntimeError(f"queue {self._queue!r} is not open in this event loop: use `async with`")
        return self._parts(self._last[1])

    def _is_agreed(self, opened: Opened) -> bool:
        return self.shards == 1 or self._layout in opened.agreed

    async def _agree(self, opened: Opened) -> None:
        found = await opened.backend.layout(self._queue, prefix=self._prefix, shards=self.shards)
        if found == 0:
            raise WrongShards(
                f"queue {self._queue!r}: shards={self.shards}: it holds jobs and is not divided; let it run "
                "empty first, or give the divided queue another name",
                0,
            )
        if found != self.shards:
            raise WrongShards(
                f"queue {self._queue!r}: shards={self.shards}: it is divided into {found} shards; pass "
                f"shards={found}",
                found,
            )
        opened.agreed.add(self._layout)

    async def enter(self) -> None:
        """Opens the store and counts one more user of it in this event loop."""
        opened = await self._open()
        opened.users += 1
        self._remember(opened)
        self._held.setdefault(asyncio.get_running_loop(), []).append(opened)

    async def leave(self) -> None:
        """Takes back one `enter` of this event loop; the last one of all queues closes."""
        held = self._held.get(asyncio.get_running_loop())
        if not held:
            raise RuntimeError(f"queue {self._queue!r} was not entered in this event loop")
        opened = held.pop()
        opened.users -= 1
        if opened.users <= 0:
            await opened.aclose()

    async def aclose(self) -> None:
        """Closes what this queue has open in this event loop, unless an `async with` still holds it."""
        loop = asyncio.get_running_loop()
        last = self._last
        if last is not None and last[0] is loop and last[1].is_open and last[1].users == 0:
            await last[1].aclose()

    def _remember(self, opened: Opened) -> QueueStore:
        parts = self._parts(opened)
        store: QueueStore = ShardedStore(parts) if self.shards > 1 else parts[0]
        self._last = asyncio.get_running_loop(), opened, store
        return store

    def _parts(self, opened: Opened) -> list[Store]:
        numbers = range(self.shards) if self.shards > 1 else (None,)
        bounds = self._bounds.of_one(self.shards)
        return [
            opened.backend.store(
                self._queue, prefix=self._prefix, shard=number, fifo=self._fifo, bounds=bounds
            )
            for number in numbers
        ]

    async def _open(self) -> Opened:
        loop = asyncio.get_running_loop()
        by_key = _opened.setdefault(loop, {})
        if self._client is not None:
            return self._opened(by_key, (self._client, self._scripting), None)
        url = self._read_url()
        key = url, self._scripting
        found = by_key.get(key)
        if found is not None and found.is_open:
            return found
        if not url.startswith("embedded://"):
            return self._opened(by_key, key, url)
        server = _use_server(url)
        try:
            url = await asyncio.to_thread(server.start)
            found = by_key.get(key)  # another task may have been faster
            if found is None or not found.is_open:
                return self._opened(by_key, key, url, server)
        except BaseException:
            _stop_using(server)
            raise
        _stop_using(server)
        return found

    def _opened(
        self, by_key: dict[_Key, Opened], key: _Key, url: str | None, server: EmbeddedServer | None = None
    ) -> Opened:
        found = by_key.get(key)
        if found is None or not found.is_open:

            def forget(opened: Opened) -> None:
                if by_key.get(key) is opened:
                    del by_key[key]

            found = by_key[key] = Opened(self._backend(url), server, forget)
        return found

    def _backend(self, url: str | None) -> Backend:
        if url is not None and url.startswith("memory://"):
            with _lock:
                return _memories.setdefault(url.removeprefix("memory://"), MemoryBackend())
        # Imported late, so that producers of memory:// queues and the front door do without redis-py.
        from aiodq._redis.backend import RedisBackend  # noqa: PLC0415

        return RedisBackend(url=url, client=self._client, scripting=self._scripting)

    def _read_url(self) -> str:
        url = self._url() if callable(self._url) else self._url
        if url is None:
            url = next(filter(None, map(os.environ.get, URL_VARIABLES)), None)
        if url is None:
            raise ConfigError(
                f"queue {self._queue!r} does not know its server: pass url= or redis= to Queue, or set "
                f"{' or '.join(URL_VARIABLES)} in the environment, for example to redis://127.0.0.1:6379/0"
            )
        return _check_url(url)


def _check_url(url: object) -> str:
    if not isinstance(url, str):
        raise ConfigError(f"url={url!r}: {_KNOWN}")
    scheme, found, rest = url.partition("://")
    if not found or scheme not in (*_REDIS_SCHEMES, "memory", "embedded"):
        shown = f"{scheme}://…" if found else repr(url)  # what follows may hold a password
        raise ConfigError(f"url={shown}: {_KNOWN}")
    if scheme in ("redis", "rediss") and not _DATABASE.fullmatch(urlsplit(url).path):
        raise ConfigError(
            f"url={scheme}://…: expected the number of a database after the address, as in "
            "redis://127.0.0.1:6379/0; in a password, / is written %2F"
        )
    if scheme != "memory" and not rest:
        raise ConfigError(f"url={url!r}: the server's address or directory is missing")
    return url


_KNOWN: Final = (
    "expected redis://, rediss:// or unix:// (Valkey too), redis+sentinel://HOST,HOST/SERVICE, "
    "redis+cluster://HOST,HOST, embedded://DIR or memory://NAME"
)


def _check_client(client: object) -> None:
    # A RedisCluster has its settings itself, other clients in their pool.
    holder = getattr(client, "connection_pool", None) or getattr(client, "nodes_manager", None)
    if holder is None or not inspect.iscoroutinefunction(getattr(client, "aclose", None)):
        raise ConfigError(f"redis={client!r}: expected a redis.asyncio.Redis or RedisCluster client")
    if getattr(holder, "connection_kwargs", {}).get("decode_responses"):
        raise ConfigError(
            "redis=: the client decodes responses, and jobs are bytes: use decode_responses=False"
        )


def _use_server(url: str) -> EmbeddedServer:
    from aiodq.embedded import EmbeddedServer, parse_embedded_url  # noqa: PLC0415  (as above)

    directory = str(parse_embedded_url(url))
    with _lock:
        server, users = _servers.get(directory) or (EmbeddedServer(directory), 0)
        _servers[directory] = server, users + 1
        return server


def _stop_using(server: EmbeddedServer) -> None:
    with _lock:
        for directory, (other, users) in list(_servers.items()):
            if other is server:
                if users > 1:
                    _servers[directory] = server, users - 1
                    return
                del _servers[directory]
                server.stop()
