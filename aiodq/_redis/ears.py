"""One worker's ears on one server: a subscriber connection for the wake channels of all its shards there."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable
from typing import Final, Protocol, cast

from redis import exceptions as foreign

from aiodq._core.store import Notice
from aiodq._redis.faults import CONNECTION_ERRORS
from aiodq._redis.keys import ShardKeys
from aiodq._redis.link import Backoff, Connection, close_quietly, connect, pack

PING_S: Final = 30.0
"""How often a worker that holds a seat or leases tries its subscriber connection. That also keeps routers
from forgetting it: a holder whose channel falls silent counts as dead. Others learn of a lost one by their
claims."""

PONG_S: Final = 5.0

log = logging.getLogger("aiodq.redis")

_DUE: Final = re.compile(rb"(\d+) (\d+)")

OnNotice = Callable[[Notice], None]


def _notice(data: bytes) -> Notice | None:
    """Reads a published notice; one of a later version, which this one does not know, is passed over."""
    if due := _DUE.fullmatch(data):
        return Notice("due", int(due[1]), int(due[2]))
    if data == b"resume":
        return Notice("resume")
    if data == b"renew":
        return Notice("renew")
    return None


_MOVED: Final = (foreign.AskError, foreign.ClusterDownError, foreign.TryAgainError)
"""What a node says whose slot is, or may be, somewhere else. A MovedError is an AskError to redis-py."""


class Hearing(Protocol):
    """How a worker's shards are heard: `Ears`, or in a cluster those of several nodes."""

    tried: set[str]

    async def listen(self, keys: ShardKeys, on_notice: OnNotice) -> object: ...
    async def doubt(self, keys: ShardKeys) -> object: ...


class Ears:
    """Hears for several shards over one connection; lives while somebody listens.

    Args:
        node: one node of a cluster is heard, on sharded channels, and over one connection only: when that
            ends, or a slot has left the node, `ended` is set and all shards are to be looked for anew.
        told: errors that are in the log already.
    """

    def __init__(
        self,
        make: Callable[[], Connection],
        worker_id: str,
        *,
        node: bool = False,
        told: set[str] | None = None,
    ) -> None:
        self._make = make
        self._worker_id = worker_id
        self._sharded = b"S" if node else b""
        self._node = node
        self._told: set[str] = set() if told is None else told
        self.ended = asyncio.Event()
        self.subscribed = False
        """Whether a subscription has been confirmed at any time."""
        self._callbacks: dict[bytes, OnNotice] = {}
        self._pending: dict[bytes, OnNotice] = {}
        self._connection: Connection | None = None
        self._reader: asyncio.Task[None] | None = None
        self.tried: set[str] = set()
        """Wake prefixes of the shards in which this worker holds a seat or leases: while there is one, the
        connection is tried."""
        self._doubted: Connection | None = None
        self._doubt_from = 0.0

    async def listen(self, keys: ShardKeys, on_notice: OnNotice) -> None:
        """Reports the shard's notices until cancelled, and `connected` after each (re)subscription. Returns
        when the ears have ended."""
        own, common = f"{keys.wake}{self._worker_id}".encode(), keys.wake_all.encode()
        self._callbacks[own] = self._callbacks[common] = on_notice
        self._pending[own] = on_notice
        try:
            if self._reader is None:
                self._reader = asyncio.create_task(self._hear())
            elif self._connection is not None:
                await self._subscribe(self._connection, common, own)
            await self.ended.wait()
        finally:
            for channel in (own, common):
                self._callbacks.pop(channel, None)
                self._pending.pop(channel, None)
            self.tried.discard(keys.wake)
            if not self._callbacks:
                await self._stop()
            elif self._connection is not None:
                await self._send(self._connection, self._sharded + b"UNSUBSCRIBE", common, own)

    def hears(self, keys: ShardKeys) -> bool:
        """Whether it has confirmed that it hears this shard."""
        own = f"{keys.wake}{self._worker_id}".encode()
        return own in self._callbacks and own not in self._pending and self._connection is not None

    async def doubt(self, keys: ShardKeys) -> bool:
        """A claim found nobody listening. The second time on one connection that was thought to be
        subscribed, it is given up for another, and the answer is yes; at most each `PING_S`, since some
        servers cannot tell."""
        now = time.monotonic()
        if not self.hears(keys):
            return False
        if self._doubted is not self._connection or now < self._doubt_from:
            self._doubted = self._connection
            return False
        self._doubt_from = now + PING_S
        reader = self._reader
        if reader is not None:
            reader.cancel()
            await asyncio.wait([reader])
            if self._reader is reader and not self._node:
                self._reader = asyncio.create_task(self._hear())
        return True

    async def _subscribe(self, connection: Connection, *channels: bytes) -> None:
        await self._send(connection, self._sharded + b"SUBSCRIBE", *channels)

    async def _stop(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.wait([reader])

    async def _send(self, connection: Connection, *command: bytes) -> None:
        try:
            await connection.send_packed_command([pack(*command)], check_health=False)
        except Exception as error:  # noqa: BLE001
            # The reader finds the connection broken, and subscribes again.
            log.debug("could not subscribe: %s", error)

    async def _hear(self) -> None:
        try:
            waits = Backoff()
            while True:
                if await self._hear_once(waits):
                    self._deaf()
                if self._node:
                    return
                await asyncio.sleep(waits.next_s())
        finally:
            if self._node:
                self.ended.set()

    async def _hear_once(self, waits: Backoff) -> bool:
        """Hears over one connection. Whether it could be opened."""
        connection, heard = self._make(), False
        try:
            await connect(connection)
            self._connection, heard = connection, True
            self._pending = {c: f for c, f in self._callbacks.items() if not c.endswith(b":wake:*")}
            # The queue-wide channel first: when a worker's own is confirmed, it hears everything.
            for channel in list(self._pending):
                common = channel[: channel.rindex(b":") + 1] + b"*"
                await self._subscribe(connection, common, channel)
            await self._read(connection, waits)
        except (*CONNECTION_ERRORS, *_MOVED) as error:
            log.debug("notices interrupted: %s", error)
        except Exception as error:
            # Deaf ears cost punctuality only: listening must not end with the first surprise.
            # Said once, not with each try: no right to subscribe is one that stays.
            level = logging.DEBUG if str(error) in self._told else logging.ERROR
            self._told.add(str(error))
            log.log(level, "no notices, jobs may start up to a second late: %s", error, exc_info=error)
        finally:
            self._connection = None
            await close_quietly(connection)
        return heard

    def _deaf(self) -> None:
        """The channels are silent now, though their worker lives: renewing its leases shows that."""
        for channel in list(self._callbacks):
            if not channel.endswith(b":wake:*"):
                self._deliver(channel, Notice("renew"))

    async def _read(self, connection: Connection, waits: Backoff) -> None:
        asked = False
        while True:
            reply = await connection.read_response(disable_decoding=True, timeout=PONG_S if asked else PING_S)
            if reply is None:
                if asked:
                    raise ConnectionError("the subscriber connection does not answer")
                if any(f"{wake}{self._worker_id}".encode() in self._callbacks for wake in self.tried):
                    await self._send(connection, b"PING")
                    asked = True
                continue
            asked = False
            message = cast(list[bytes], reply)
            if len(message) < 3:  # a pong
                continue
            kind, channel, data = message
            if kind in (b"message", b"smessage"):
                self._deliver(channel, _notice(data))
            elif kind in (b"subscribe", b"ssubscribe") and channel in self._pending:
                waits.reset()
                self.subscribed = True
                self._pending.pop(channel)
                self._deliver(channel, Notice("connected"))
            elif kind == b"sunsubscribe" and channel in self._callbacks:
                raise ConnectionError("the node does not serve the slot any more")

    def _deliver(self, channel: bytes, notice: Notice | None) -> None:
        callback = self._callbacks.get(channel)
        if callback is not None and notice is not None:
            callback(notice)
