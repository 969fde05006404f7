"""Natural batching: jobs of concurrent callers share script calls, one call in flight at a time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from aiodq._core.errors import StoreUnavailable
from aiodq._core.store import BATCH, Entry, Placed

BATCH_BYTES: Final = 4 * 1024 * 1024
"""Payload bytes after which a call is sent even if it has room for more jobs; a single larger job travels
alone."""


class _Order:
    """The entries of one caller, and how far they have come."""

    __slots__ = ("answers", "entries", "future", "taken")

    def __init__(self, entries: Sequence[Entry], future: asyncio.Future[list[Placed]]) -> None:
        self.entries = entries
        self.future = future
        self.taken = 0
        self.answers: list[Placed] = []


class Gatherer:
    """Collects entries while a call is in flight, and sends them together in the next.

    A batch is atomic; the entries of one caller may be spread over several batches, in their order.
    """

    def __init__(self, send: Callable[[list[Entry]], Awaitable[list[Placed]]]) -> None:
        self._send = send
        self._orders: deque[_Order] = deque()
        self._task: asyncio.Task[None] | None = None

    async def put(self, entries: Sequence[Entry]) -> list[Placed]:
        """Raises what the call raises; then the fate of this caller's entries is what the error says."""
        if not entries:
            return []
        future: asyncio.Future[list[Placed]] = asyncio.get_running_loop().create_future()
        self._orders.append(_Order(entries, future))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await future

    async def aclose(self) -> None:
        """Stops; whoever still waits is told that the store was closed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._fail(list(self._orders), StoreUnavailable("the queue was closed while this call was waiting"))
        self._orders.clear()

    async def _run(self) -> None:
        shares: list[tuple[_Order, int]] = []
        try:
            while batch := self._next(shares := []):
                try:
                    placed = await self._send(batch)
                except StoreUnavailable as error:
                    # Everybody behind has waited for the same silent server: they are told now, not one after
                    # another.
                    self._fail([*(order for order, _ in shares), *self._orders], error)
                    self._orders.clear()
                except Exception as error:  # noqa: BLE001 - it is handed to the callers, whatever it is
                    self._fail([order for order, _ in shares], error)
                else:
                    self._hand_out(shares, placed)
        finally:
            self._task = None
            self._fail(
                [order for order, _ in shares], StoreUnavailable("the queue was closed during this call")
            )

    def _next(self, shares: list[tuple[_Order, int]]) -> list[Entry]:
        batch: list[Entry] = []
        room_bytes = BATCH_BYTES
        while self._orders and len(batch) < BATCH and (room_bytes > 0 or not batch):
            order = self._orders[0]
            if order.future.done():
                # Cancelled, or failed in an earlier batch: what is left of it is not sent.
                self._orders.popleft()
                continue
            start = order.taken
            while order.taken < len(order.entries) and len(batch) < BATCH and room_bytes > 0:
                entry = order.entries[order.taken]
                if batch and len(entry.payload) > room_bytes:
                    room_bytes = 0
                    break
                batch.append(entry)
                room_bytes -= len(entry.payload)
                order.taken += 1
            if order.taken > start:
                shares.append((order, order.taken - start))
            if order.taken == len(order.entries):
                self._orders.popleft()
        return batch

    @staticmethod
    def _hand_out(shares: list[tuple[_Order, int]], placed: list[Placed]) -> None:
        at = 0
        for order, count in shares:
            order.answers += placed[at : at + count]
            at += count
            if len(order.answers) == len(order.entries) and not order.future.done():
                order.future.set_result(order.answers)
        shares.clear()

    @staticmethod
    def _fail(orders: list[_Order], error: Exception) -> None:
        for order in orders:
            if not order.future.done():
                order.future.set_exception(error)
