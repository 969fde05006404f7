"""A queue of several shards, as one store: each call goes to the shards of its jobs, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from aiodq._core.due import Due
from aiodq._core.lifecycle import Place
from aiodq._core.sharding import by_shard
from aiodq._core.store import Entry, Found, Page, Placed, QueueStore, Revival, ShardStats, Store, Was

T = TypeVar("T")
A = TypeVar("A")


class ShardedStore:
    """See `aiodq._core.store.QueueStore`. An error of one shard is raised when the calls to all of them have
    ended; what the others did stays done, and the same call again is safe.

    Attributes:
        parts: the stores of the shards, in their order.
    """

    def __init__(self, parts: Sequence[Store]) -> None:
        self.parts = parts

    async def enqueue(self, entries: Sequence[Entry], /) -> list[Placed]:
        return await self._by_id(_id_of, list(entries), lambda store, some: store.enqueue(some))

    async def replace(self, entries: Sequence[Entry], /) -> list[Placed]:
        return await self._by_id(_id_of, list(entries), lambda store, some: store.replace(some))

    async def unite(self, entries: Sequence[Entry], /) -> list[Placed]:
        return await self._by_id(_id_of, list(entries), lambda store, some: store.unite(some))

    async def cancel(self, job_ids: Sequence[str], /) -> list[Was]:
        return await self._by_id(str, job_ids, lambda store, some: store.cancel(some))

    async def reschedule(self, moves: Sequence[tuple[str, Due]], /) -> list[Was]:
        return await self._by_id(lambda move: move[0], moves, lambda store, some: store.reschedule(some))

    async def replay(self, revivals: Sequence[Revival], /) -> list[bool]:
        return await self._by_id(lambda one: one.job_id, revivals, lambda store, some: store.replay(some))

    async def purge(self, job_ids: Sequence[str], /) -> list[bool]:
        return await self._by_id(str, job_ids, lambda store, some: store.purge(some))

    async def find(self, job_ids: Sequence[str], /) -> list[Found]:
        return await self._by_id(str, job_ids, lambda store, some: store.find(some))

    async def trim(self, *, age_ms: int, count: int) -> int:
        each = -(-count // len(self.parts))
        return sum(await all_of(part.trim(age_ms=age_ms, count=each) for part in self.parts))

    async def peek(self, place: Place, /, *, limit: int, offset: int = 0) -> Page:
        pages = await all_of(part.peek(place, limit=offset + limit) for part in self.parts)
        jobs = sorted((job for page in pages for job in page.jobs), key=lambda job: job.at_ms)
        return Page(max(page.now_ms for page in pages), jobs[offset : offset + limit])

    async def stats(self) -> ShardStats:
        """Sums; of the workers that wait or hold leases, which may do so in several shards, the most of
        any shard."""
        each = await all_of(part.stats() for part in self.parts)
        return ShardStats(
            now_ms=max(one.now_ms for one in each),
            due=sum(one.due for one in each),
            scheduled=sum(one.scheduled for one in each),
            processing=sum(one.processing for one in each),
            expired=sum(one.expired for one in each),
            dead=sum(one.dead for one in each),
            oldest_overdue_ms=max(one.oldest_overdue_ms for one in each),
            paused=next((one.paused for one in each if one.paused is not None), None),
            idle=max(one.idle for one in each),
            holders=max(one.holders for one in each),
        )

    async def pause(self, reason: str, /) -> None:
        await all_of(part.pause(reason) for part in self.parts)

    async def resume(self) -> None:
        await all_of(part.resume() for part in self.parts)

    async def _by_id(
        self,
        id_of: Callable[[A], str],
        asked: Sequence[A],
        call: Callable[[Store, Sequence[A]], Awaitable[Sequence[T]]],
    ) -> list[T]:
        """Asks each shard about its jobs; the answers come in the order of the questions."""
        groups = by_shard(map(id_of, asked), len(self.parts))
        if len(groups) == 1:
            (shard,) = groups
            return list(await call(self.parts[shard], asked))
        answers = await all_of(
            call(self.parts[shard], [asked[at] for at in places]) for shard, places in groups.items()
        )
        found: dict[int, T] = {}
        for places, some in zip(groups.values(), answers, strict=True):
            found.update(zip(places, some, strict=True))
        return [found[at] for at in range(len(asked))]


def parts_of(store: QueueStore) -> Sequence[QueueStore]:
    """The shards of a queue; of one that is not divided, the queue itself."""
    return store.parts if isinstance(store, ShardedStore) else [store]


async def all_of(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Waits for all of them; then raises the first error, if there was one."""
    answers = await asyncio.gather(*calls, return_exceptions=True)
    found: list[T] = []
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
        found.append(answer)
    return found


def _id_of(entry: Entry) -> str:
    return entry.job_id
