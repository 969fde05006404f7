"""Natural batching: jobs of concurrent callers share script calls, and full batches travel side by side."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain
from typing import Final

from aiodq._core.backlog import BacklogFull
from aiodq._core.errors import StoreUnavailable
from aiodq._core.store import BATCH, Entry, Placed

BATCH_BYTES: Final = 4 * 1024 * 1024
"""Payload bytes after which a call is sent even if it has room for more jobs; a single larger job travels
alone."""

WORTH_A_CALL: Final = 32
"""So many jobs are a second call beside one that is on its way: with a hundred callers who wait for their
answers, two calls of fifty take turns in the server and in here."""

_OPENS_AT: Final = (1, WORTH_A_CALL, 2 * BATCH, 3 * BATCH)
"""How many jobs must wait for the first, second … call on its way. With full batches the server works on one
while the next is packed and the answer to the last is read."""

LANES: Final = len(_OPENS_AT)
"""Calls on their way at a time, at most."""

_NOT_YET: Final[list[Placed]] = []
"""Stands where the answers of a call on its way will be."""

Send = Callable[[list[Entry], int], Awaitable[list[Placed]]]


class _Order:
    """The entries of one caller, and how far they have come."""

    __slots__ = ("answers", "entries", "future", "missing", "taken")

    def __init__(self, entries: Sequence[Entry], future: asyncio.Future[list[Placed]]) -> None:
        self.entries = entries
        self.future = future
        self.taken = 0
        self.missing = len(entries)
        self.answers: list[list[Placed]] = []


class _Batch:
    """The entries of one call. `shares`: whose they are, in their order: an order, how many entries of it,
    and at which place of its answers theirs belong."""

    __slots__ = ("entries", "shares")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.shares: list[tuple[_Order, int, int]] = []


class Gatherer:
    """Collects entries while a call is in flight, and sends them together in the next.

    A batch is atomic; the entries of one caller may be spread over several batches. No two calls on their
    way hold the same id, so entries of one id take effect in the order in which they were put.

    The server remembers one call of each lane and refuses older ones. A call that was given up may still
    arrive, so before anything else is sent an empty call overtakes it in its lane.

    Args:
        send: makes one call in a lane, 0 to `LANES` - 1, which has no other call at that time.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._orders: deque[_Order] = deque()
        self._waiting = 0
        self._calls = 0
        self._flying: set[str] = set()
        self._lanes: dict[int, asyncio.Task[None]] = {}
        self._doubtful: set[int] = set()
        """Lanes whose last call was given up."""

    async def put(self, entries: Sequence[Entry]) -> list[Placed]:
        """Raises what the call raises; then the fate of this caller's entries is what the error says."""
        if not entries:
            return []
        future: asyncio.Future[list[Placed]] = asyncio.get_running_loop().create_future()
        self._orders.append(_Order(entries, future))
        self._waiting += len(entries)
        self._open_lanes()
        return await future

    async def aclose(self) -> None:
        """Stops; whoever still waits is told that the store was closed."""
        lanes = list(self._lanes.values())
        for lane in lanes:
            lane.cancel()
        if lanes:
            await asyncio.wait(lanes)
        self._fail_waiting(StoreUnavailable("the queue was closed while this call was waiting"))

    def _open_lanes(self) -> None:
        """One for whatever waits, a second for a good part of a batch, more for full ones; and all in which
        something is to be overtaken."""
        lanes = self._lanes
        if self._doubtful:
            for lane in self._doubtful.difference(lanes):
                lanes[lane] = asyncio.create_task(self._run(lane))
        while len(lanes) < LANES and self._waiting >= _OPENS_AT[len(lanes)]:
            lane = next(number for number in range(LANES) if number not in lanes)
            lanes[lane] = asyncio.create_task(self._run(lane))

    async def _run(self, lane: int) -> None:
        batch: _Batch | None = None
        try:
            while await self._is_clear(lane) and (batch := self._next()):
                ids = [entry.job_id for entry in batch.entries]
                self._flying.update(ids)
                self._calls += 1
                try:
                    placed = await self._send(batch.entries, lane)
                except StoreUnavailable as error:
                    self._doubtful.add(lane)
                    # Everybody behind has waited for the same silent server: they are told now, not one after
                    # another.
                    self._fail(batch, error)
                    self._fail_waiting(error)
                except BacklogFull as error:
                    await self._send_what_fits(batch, error, lane)
                except Exception as error:  # noqa: BLE001 - it is handed to the callers, whatever it is
                    self._fail(batch, error)
                else:
                    self._hand_out(batch, placed)
                finally:
                    self._calls -= 1
                    self._flying.difference_update(ids)
        finally:
            del self._lanes[lane]
            if batch is not None:
                self._fail(batch, StoreUnavailable("the queue was closed during this call"))

    async def _send_what_fits(self, batch: _Batch, error: BacklogFull, lane: int) -> None:
        """The queue has no room for all of a batch: the first of those who share it get what there is, once;
        what belongs to one of them stays together."""
        fits, rest, room, at = _Batch(), _Batch(), error.room, 0
        for share in batch.shares:
            entries = batch.entries[at : at + share[1]]
            at += share[1]
            size = len(entries) if error.bound == "jobs" else sum(len(entry.payload) for entry in entries)
            chosen = fits if size <= room else rest
            room = room - size if chosen is fits else 0
            chosen.entries += entries
            chosen.shares.append(share)
        self._fail(rest, error)
        if not fits.entries or not rest.entries:
            self._fail(fits, error)
            return
        try:
            placed = await self._send(fits.entries, lane)
        except StoreUnavailable as unavailable:
            self._doubtful.add(lane)
            self._fail(fits, unavailable)
            self._fail_waiting(unavailable)
        except Exception as other:  # noqa: BLE001 - as above
            self._fail(fits, other)
        else:
            self._hand_out(fits, placed)

    async def _is_clear(self, lane: int) -> bool:
        """Overtakes what was given up in this lane, if anything waits to be sent; false if that failed."""
        if lane not in self._doubtful:
            return True
        if not self._orders:
            return False
        try:
            await self._send([], lane)
        except Exception as error:  # noqa: BLE001 - as for the calls themselves
            self._fail_waiting(error)
            return False
        self._doubtful.discard(lane)
        return True

    def _next(self) -> _Batch | None:
        """What the next call sends; None: nothing, or nothing that a lane beside others should send."""
        if self._doubtful or (len(self._lanes) > 1 and self._waiting < WORTH_A_CALL):
            return None
        batch = _Batch()
        # Lanes that are about to send as well get their part.
        most = min(BATCH, max(WORTH_A_CALL, -(-self._waiting // (len(self._lanes) - self._calls))))
        chosen, flying, orders = batch.entries, self._flying, self._orders
        room_bytes = BATCH_BYTES
        while orders and len(chosen) < most and room_bytes > 0:
            order = orders[0]
            if order.future.done():
                # Cancelled, or failed in an earlier batch: what is left of it is not sent.
                orders.popleft()
                self._waiting -= len(order.entries) - order.taken
                continue
            before = len(chosen)
            for entry in order.entries[order.taken : order.taken + most - before]:
                size = len(entry.payload)
                if (chosen and size > room_bytes) or entry.job_id in flying:
                    room_bytes = 0
                    break
                chosen.append(entry)
                room_bytes -= size
                if room_bytes <= 0:
                    break
            if count := len(chosen) - before:
                batch.shares.append((order, count, len(order.answers)))
                order.answers.append(_NOT_YET)
                order.taken += count
                self._waiting -= count
            if order.taken == len(order.entries):
                orders.popleft()
        return batch if chosen else None

    @staticmethod
    def _hand_out(batch: _Batch, placed: list[Placed]) -> None:
        at = 0
        for order, count, place in batch.shares:
            order.answers[place] = placed[at : at + count]
            at += count
            order.missing -= count
            if not order.missing and not order.future.done():
                parts = order.answers
                order.future.set_result(parts[0] if len(parts) == 1 else list(chain.from_iterable(parts)))

    @staticmethod
    def _fail(batch: _Batch, error: Exception) -> None:
        for order, _, _ in batch.shares:
            if not order.future.done():
                order.future.set_exception(error)

    def _fail_waiting(self, error: Exception) -> None:
        for order in self._orders:
            if not order.future.done():
                order.future.set_exception(error)
        self._orders.clear()
        self._waiting = 0
