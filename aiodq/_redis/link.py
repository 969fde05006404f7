"""One connection that many callers share.

What is asked within one tick of the event loop, or while an answer is awaited, travels together in the next
write: one round trip for a worker's whole turn, one for a hundred producers. Only what fills a write by
itself goes out at once, so that the server has it when it is done with what came before. Replies come as
values, errors among them. Nothing is sent twice in here: whether a call may be repeated is its caller's to
know. A cancelled caller leaves its reply in the right place: the link itself counts replies off.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, Final, Protocol, TypeAlias, cast

import hiredis
from redis import exceptions as foreign

from aiodq._redis.faults import CONNECTION_ERRORS, Lost
from aiodq._redis.identity import Identity
from aiodq._redis.wire import Connection, Wire, open_wire

__all__ = ["Backoff", "Connection", "Line", "Link", "Reply", "close_quietly", "pack"]

BACKOFF_FIRST_S: Final = 0.05
BACKOFF_CAP_S: Final = 0.5
"""Reconnecting waits at most this long between tries: keepers must renew before somebody else becomes steady
(3 s)."""

SLOWEST_BYTES_S: Final = 250_000
"""What is sent is given this much more time: a large job over a slow line is not an outage."""

FULL_WRITE_BYTES: Final = 2048
"""So much is written while answers are still awaited: company would save little, and the server would have
nothing to do meanwhile. About 30 small jobs."""

MOST_AHEAD: Final = 8
"""Not while this many answers are awaited. It bounds what is in doubt after a break, and how long the
allowances for slow lines can put off that a silent server is noticed."""

CLOSED: Final = "the connection was closed by this process"

Reply: TypeAlias = object
"""What the server said, or the exception that stands for it."""


def pack(*command: str | bytes | int) -> bytes:
    """One command as it travels."""
    return _pack(command)


# hiredis types it in part only.
_pack = cast(Callable[[tuple[str | bytes | int, ...]], bytes], hiredis.pack_command)  # pyright: ignore[reportUnknownMemberType]


OPENING_S: Final = 5.0
"""How long opening a connection may take, Sentinels and passwords included."""


async def connect(connection: Connection) -> None:
    """Opens it. Raises TimeoutError, besides what redis-py raises, when somebody took the connection and then
    said nothing: redis-py bounds the first step only."""
    try:
        async with asyncio.timeout(OPENING_S):
            await connection.connect()
    except TimeoutError as error:
        raise TimeoutError(str(error) or f"the connection was not open after {OPENING_S:g} s") from error


class Backoff:
    """Waiting times between tries to reconnect: doubling, jittered, capped at half a second, endless."""

    def __init__(self) -> None:
        self._failures = 0

    def next_s(self) -> float:
        delay = min(BACKOFF_CAP_S, BACKOFF_FIRST_S * (1 << min(self._failures, 10)))
        self._failures += 1
        return delay * (0.5 + random.random() / 2)

    def reset(self) -> None:
        self._failures = 0


class Line(Protocol):
    """What calls of one shard are sent over: a `Link`, or in a cluster the way to whoever serves its slot."""

    clustered: ClassVar[bool]
    """Whether notices are published in slots, as keys are."""

    @property
    def identity(self) -> Identity | None: ...
    @property
    def closed(self) -> bool: ...
    @property
    def ever_connected(self) -> bool: ...
    @property
    def unbroken_since(self) -> float | None: ...
    @property
    def trouble(self) -> str: ...

    def send(self, command: bytes) -> asyncio.Future[Reply]: ...
    def flush(self) -> None: ...

    async def refused(self, *, elsewhere: bool) -> None:
        """A call was refused for now. `elsewhere`: this is not the node to be asked any more."""
        ...

    async def aclose(self) -> None: ...


class Link:
    """A shared connection; opened by the first call, and again by the first call after it broke.

    Args:
        make: makes a new, unconnected connection.
        reply_timeout_s: how long to wait for the next reply until the connection counts as broken.
        identity: asks each new connection which server it leads to.
        once: for one connection only; with its end the link is closed.
    """

    clustered: ClassVar[bool] = False

    def __init__(
        self,
        make: Callable[[], Connection],
        *,
        reply_timeout_s: float,
        identity: Identity | None = None,
        once: bool = False,
    ) -> None:
        self._make = make
        self._once = once
        self.identity = identity
        self._reply_timeout_s = reply_timeout_s
        self._waiting: list[tuple[bytes, asyncio.Future[Reply]]] = []
        self._waiting_bytes = 0
        self._in_flight: deque[tuple[int, asyncio.Future[Reply]]] = deque()
        """With the bytes of their commands."""
        self._in_flight_bytes = 0
        self._flush_soon = False
        self._opening: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._connection: Connection | None = None
        self._wire: Wire | None = None
        self._heard_at = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self._backoff = Backoff()
        self._not_before = 0.0
        self.closed = False
        self.ever_connected = False
        self.unbroken_since: float | None = None
        """`time.monotonic()` since when every call succeeded on this connection; None: there is none."""
        self.trouble = ""
        """Why the last try to connect failed; empty: it did not."""

    def send(self, command: bytes) -> asyncio.Future[Reply]:
        """Puts one packed command into the next write. The future always gets a result; errors are values."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Reply] = loop.create_future()
        if self.closed:
            future.set_result(Lost(CLOSED, sent=False))
            return future
        self._waiting.append((command, future))
        self._waiting_bytes += len(command)
        if not self._flush_soon and self._may_write():
            self._flush_soon = True
            loop.call_soon(self._flush_later)
        return future

    def flush(self) -> None:
        """Writes what was asked for now, rather than in the loop's next round."""
        if not self._waiting or not self._may_write():
            return  # it goes out with the last answer, or when it has become a full write
        if self._wire is None:
            if self._opening is None:
                self._opening = asyncio.create_task(self._open())
            return
        batch, self._waiting, self._waiting_bytes = self._waiting, [], 0
        loop = asyncio.get_running_loop()
        if not self._in_flight:
            self._heard_at = loop.time()
        self._in_flight.extend((len(command), future) for command, future in batch)
        commands = [command for command, _ in batch]
        size = sum(map(len, commands))
        self._in_flight_bytes += size
        self._heard_at += size / SLOWEST_BYTES_S
        if self._watch is None:
            self._watch = loop.call_later(self._reply_timeout_s, self._look)
        self._wire.write(commands)

    async def refused(self, *, elsewhere: bool) -> None:
        """A call was refused for now. `elsewhere`: the connection leads to the wrong node, so the next call
        opens another one."""
        if elsewhere:
            await self._part(Lost("the connection was given up", sent=True))
        elif self.unbroken_since is not None:
            self.unbroken_since = time.monotonic()

    async def aclose(self) -> None:
        self.closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        self._answer_waiting(Lost(CLOSED, sent=False))
        await self._part(Lost(CLOSED, sent=True))
        if self._closing:
            await asyncio.wait(self._closing)

    def _may_write(self) -> bool:
        awaited = len(self._in_flight)
        return not awaited or (self._waiting_bytes >= FULL_WRITE_BYTES and awaited < MOST_AHEAD)

    def _flush_later(self) -> None:
        self._flush_soon = False
        self.flush()

    def _answer_waiting(self, reply: Reply) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        for _, future in waiting:
            if not future.done():
                future.set_result(reply)

    async def _open(self) -> None:
        """Opens the connection and writes what waits for it; tells those who wait when that failed."""
        try:
            wait_s = self._not_before - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            await self._connect()
        except CONNECTION_ERRORS as error:
            self._answer_waiting(_lost(error, sent=False))
        except foreign.RedisError as error:
            self._answer_waiting(error)
        except Exception as error:  # noqa: BLE001
            # As a host name that cannot be encoded: nobody may be left waiting.
            self._answer_waiting(_lost(error, sent=False))
        finally:
            self._opening = None
        self.flush()

    async def _connect(self) -> None:
        connection = self._make()
        try:
            await connect(connection)
        except BaseException as error:
            self.trouble = said(error)
            self.closed = self.closed or self._once
            self._put_off()
            await close_quietly(connection)
            raise
        self._backoff.reset()
        self.trouble = ""
        self._connection = connection
        self._wire = open_wire(connection, self._replied, self._broke, self._heard)
        self.ever_connected = True
        self.unbroken_since = time.monotonic()
        if self.identity is not None:
            self._waiting[:0] = self.identity.questions()

    def _put_off(self) -> None:
        self._not_before = time.monotonic() + self._backoff.next_s()

    def _replied(self, reply: Reply) -> None:
        in_flight = self._in_flight
        if not in_flight:
            self._broke(ConnectionError("the server answered what nobody had asked"))
            return
        size, future = in_flight.popleft()
        self._in_flight_bytes -= size
        if not future.done():
            future.set_result(reply)
        if in_flight:
            self._heard_at = asyncio.get_running_loop().time() + self._in_flight_bytes / SLOWEST_BYTES_S
        if self._waiting:
            self.flush()

    def _heard(self) -> None:
        """A part of a reply arrived."""
        self._heard_at = max(self._heard_at, asyncio.get_running_loop().time())

    def _look(self) -> None:
        """One timer for all calls: looks whether an answer has been awaited for too long."""
        self._watch = None
        if not self._in_flight:
            return
        loop = asyncio.get_running_loop()
        over = self._heard_at + self._reply_timeout_s
        if loop.time() < over:
            self._watch = loop.call_at(over, self._look)
        else:
            self._broke(TimeoutError(f"no reply within {self._reply_timeout_s:g} s"))

    def _broke(self, error: Exception) -> None:
        """The connection ended, or its replies can no longer be matched to calls."""
        self._put_off()
        closing = asyncio.get_running_loop().create_task(self._part(_lost(error, sent=True)))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _part(self, reply: Lost) -> Coroutine[Any, Any, None]:
        """Leaves the connection now; what is awaited closes it."""
        connection, self._connection = self._connection, None
        wire, self._wire = self._wire, None
        self.unbroken_since = None
        if wire is not None:
            wire.abandon()
        in_flight, self._in_flight, self._in_flight_bytes = self._in_flight, deque(), 0
        for _, future in in_flight:
            if not future.done():
                future.set_result(reply)
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self._once:
            self.closed = True
            self._answer_waiting(_unsent(reply))
        self.flush()
        return _close(connection)


async def _close(connection: Connection | None) -> None:
    if connection is not None:
        await close_quietly(connection)


def _lost(error: Exception, *, sent: bool) -> Lost:
    lost = Lost(said(error), sent=sent)
    lost.__cause__ = error
    return lost


def _unsent(lost: Lost) -> Lost:
    unsent = Lost(str(lost), sent=False)
    unsent.__cause__ = lost.__cause__
    return unsent


def said(error: BaseException) -> str:
    """The error's text, to be put into a longer sentence."""
    return str(error).rstrip(".") or type(error).__name__


async def close_quietly(connection: Connection) -> None:
    # A connection that cannot even be closed is gone, which is what was wanted.
    with contextlib.suppress(Exception):
        await connection.disconnect(nowait=True)
