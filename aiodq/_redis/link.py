"""One connection that many callers share.

What is asked within one tick of the event loop, or while an answer is awaited, travels together in the next
write: one round trip for a worker's whole turn, one for a hundred producers. Replies come as values, errors
among them. Nothing is sent twice in here: whether a call may be repeated is its caller's to know. A cancelled
caller leaves its reply in the right place, since replies are read by the link's own task.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias, cast

import hiredis
from redis import exceptions as foreign

from aiodq._redis.faults import CONNECTION_ERRORS, Lost
from aiodq._redis.identity import Identity

BACKOFF_FIRST_S: Final = 0.05
BACKOFF_CAP_S: Final = 1.0
"""Reconnecting waits at most this long between tries: keepers must renew before somebody else becomes steady
(3 s)."""

Reply: TypeAlias = object
"""What the server said, or the exception that stands for it."""


class Connection(Protocol):
    """The part of a redis-py connection that is used here."""

    async def connect(self) -> None: ...
    async def send_packed_command(self, command: list[bytes], check_health: bool = ...) -> None: ...
    async def read_response(self, disable_decoding: bool = ..., timeout: float | None = ...) -> object: ...
    async def disconnect(self, nowait: bool = ...) -> None: ...


def pack(*command: str | bytes | int) -> bytes:
    """One command as it travels."""
    return _pack(command)


# hiredis types it in part only.
_pack = cast(Callable[[tuple[str | bytes | int, ...]], bytes], hiredis.pack_command)  # pyright: ignore[reportUnknownMemberType]


class Backoff:
    """Waiting times between tries to reconnect: doubling, jittered, capped at a second, endless."""

    def __init__(self) -> None:
        self._failures = 0

    def next_s(self) -> float:
        delay = min(BACKOFF_CAP_S, BACKOFF_FIRST_S * (1 << min(self._failures, 10)))
        self._failures += 1
        return delay * (0.5 + random.random() / 2)

    def reset(self) -> None:
        self._failures = 0


class Link:
    """A shared connection; opened by the first call, and again by the first call after it broke.

    Args:
        make: makes a new, unconnected connection.
        reply_timeout_s: how long to wait for the next reply until the connection counts as broken.
        identity: asks each new connection which server it leads to.
    """

    def __init__(
        self, make: Callable[[], Connection], *, reply_timeout_s: float, identity: Identity | None = None
    ) -> None:
        self._make = make
        self.identity = identity
        self._reply_timeout_s = reply_timeout_s
        self._waiting: list[tuple[bytes, asyncio.Future[Reply]]] = []
        self._pump: asyncio.Task[None] | None = None
        self._connection: Connection | None = None
        self._backoff = Backoff()
        self._not_before = 0.0
        self.closed = False
        self.ever_connected = False
        self.unbroken_since: float | None = None
        """`time.monotonic()` since when every call succeeded on this connection; None: there is none."""

    def send(self, command: bytes) -> asyncio.Future[Reply]:
        """Puts one packed command into the next write. The future is always given a result; errors are
        values."""
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        if self.closed:
            future.set_result(Lost("the connection was closed by this process", sent=False))
            return future
        self._waiting.append((command, future))
        if self._pump is None:
            self._pump = asyncio.create_task(self._run())
        return future

    async def drop(self) -> None:
        """Gives the connection up, so that the next call opens another one: this one leads to the wrong
        node."""
        connection, self._connection = self._connection, None
        self.unbroken_since = None
        if connection is not None:
            await close_quietly(connection)

    async def aclose(self) -> None:
        self.closed = True
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.wait([self._pump])
        self._answer_all(Lost("the connection was closed by this process", sent=False))
        await self.drop()

    def _answer_all(self, reply: Reply) -> None:
        waiting, self._waiting = self._waiting, []
        _answer(waiting, reply)

    async def _run(self) -> None:
        try:
            while self._waiting:
                try:
                    connection = self._connection or await self._open()
                except CONNECTION_ERRORS as error:
                    self._answer_all(_lost(error, sent=False))
                    continue
                except foreign.RedisError as error:
                    self._answer_all(error)
                    continue
                except Exception as error:  # noqa: BLE001
                    # As a host name that cannot be encoded: nobody may be left waiting.
                    self._answer_all(_lost(error, sent=False))
                    continue
                batch, self._waiting = self._waiting, []
                await self._exchange(connection, batch)
        finally:
            self._pump = None

    async def _open(self) -> Connection:
        wait_s = self._not_before - time.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        connection = self._make()
        try:
            await connection.connect()
        except BaseException:
            self._not_before = time.monotonic() + self._backoff.next_s()
            await close_quietly(connection)
            raise
        self._backoff.reset()
        self._connection = connection
        self.ever_connected = True
        self.unbroken_since = time.monotonic()
        if self.identity is not None:
            self._waiting[:0] = self.identity.questions()
        return connection

    async def _exchange(
        self, connection: Connection, batch: list[tuple[bytes, asyncio.Future[Reply]]]
    ) -> None:
        loop = asyncio.get_running_loop()
        answered = 0
        try:
            async with asyncio.timeout(self._reply_timeout_s) as patience:
                await connection.send_packed_command([command for command, _ in batch], check_health=False)
                for _, future in batch:
                    try:
                        reply = await connection.read_response(disable_decoding=True)
                    except foreign.ResponseError as error:
                        reply = error
                    answered += 1
                    if not future.done():
                        future.set_result(reply)
                    patience.reschedule(loop.time() + self._reply_timeout_s)
        except asyncio.CancelledError:
            _answer(batch[answered:], Lost("the connection was closed by this process", sent=True))
            raise
        except Exception as error:  # noqa: BLE001
            # Beside its own errors redis-py lets AttributeError, RuntimeError and the like through when the
            # peer closes at the wrong moment. Whatever it was, replies can no longer be matched to calls on
            # this connection.
            _answer(batch[answered:], _lost(error, sent=True))
            self._not_before = time.monotonic() + self._backoff.next_s()
            await self.drop()


def _lost(error: Exception, *, sent: bool) -> Lost:
    lost = Lost(str(error) or type(error).__name__, sent=sent)
    lost.__cause__ = error
    return lost


def _answer(batch: list[tuple[bytes, asyncio.Future[Reply]]], reply: Reply) -> None:
    for _, future in batch:
        if not future.done():
            future.set_result(reply)


async def close_quietly(connection: Connection) -> None:
    # A connection that cannot even be closed is gone, which is what was wanted.
    with contextlib.suppress(Exception):
        await connection.disconnect(nowait=True)
