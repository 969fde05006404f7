"""A queue's dead letters: jobs that were given up, kept for people to look at."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Final, Protocol

from aiodq._api.shards import parts_of
from aiodq._core.answers import DeadJob, Replayed
from aiodq._core.due import Due
from aiodq._core.durations import Duration, delay_ms, length_ms
from aiodq._core.explain import matches, show_dead
from aiodq._core.names import check_job_id
from aiodq._core.spread import smeared
from aiodq._core.store import BATCH, Found, QueueStore, Revival
from aiodq._core.tally import encode_tally, read_tally

_EVERY: Final = (1 << 53) - 1


class Shelf(Protocol):
    """The queue, as its dead letters need it."""

    @property
    def name(self) -> str: ...
    async def _store(self) -> QueueStore: ...


class DeadLetters:
    """The dead letters of a queue, as `queue.dead`. They are kept for the queue's `retention`.

    Every method raises `StoreUnavailable` when the server does not answer.
    """

    __slots__ = ("_queue",)

    def __init__(self, queue: Shelf) -> None:
        self._queue = queue

    def __repr__(self) -> str:
        return f"<DeadLetters of queue {self._queue.name!r}>"

    async def list(
        self, *, limit: int = 100, task: str | None = None, error: str | None = None
    ) -> Sequence[DeadJob]:
        """The first `limit` dead letters, oldest burial first; only those of a task, or whose last error
        is of a type (such as "TimeoutError").

        Raises:
            ValueError: a limit below 1.
        """
        if limit < 1:
            raise ValueError(f"limit={limit!r}: expected at least 1; scan() goes through all")
        found: list[DeadJob] = []
        async with aclosing(self._all(task, error)) as jobs:
            async for job in jobs:
                found.append(show_dead(job))
                if len(found) == limit:
                    break
        return found

    async def scan(self, *, task: str | None = None, error: str | None = None) -> AsyncIterator[DeadJob]:
        """All dead letters that were there at its start, oldest first, read in pages.

        Those that go meanwhile, by a replay or purge in the loop's body, do not make it skip others.
        """
        async with aclosing(self._all(task, error)) as jobs:
            async for job in jobs:
                yield show_dead(job)

    async def get(self, job_id: str, /) -> DeadJob | None:
        """The dead letter of that id, if there is one."""
        found = await (await self._queue._store()).find([check_job_id(job_id)])
        return show_dead(found[0]) if found[0].was == "dead" else None

    async def replay(
        self, ids: str | Iterable[str], *, after: Duration = 0, spread: Duration = 0
    ) -> Replayed:
        """Schedules dead letters again, with all their attempts; their history is kept.

        Args:
            ids: one id, or several.
            after: due that long from now, by the server's clock; seconds or timedelta.
            spread: due up to that much later, drawn evenly by the id, so that many jobs do not start at one
                moment.

        Raises:
            TypeError, ValueError: no possible ids, no usable delay; nothing was replayed.
            QueueFull: the server is out of memory; the ids before may have been replayed.
        """
        due, spread_ms = Due(delay_ms(after)), length_ms(spread, "spread", zero=True)
        wanted = [check_job_id(job_id) for job_id in ([ids] if isinstance(ids, str) else ids)]
        store = await self._queue._store()
        made: set[str] = set()
        for start in range(0, len(wanted), BATCH):
            jobs = [job for job in await store.find(wanted[start : start + BATCH]) if job.was == "dead"]
            revivals = [
                Revival(
                    job.job_id,
                    job.at_ms,
                    smeared(due, job.job_id, spread_ms),
                    encode_tally(read_tally(job.tally).revived()),
                )
                for job in jobs
            ]
            if revivals:
                answers = await store.replay(revivals)
                made.update(job.job_id for job, done in zip(jobs, answers, strict=True) if done)
        each = dict.fromkeys(wanted)
        return Replayed(
            tuple(job_id for job_id in each if job_id in made),
            tuple(job_id for job_id in each if job_id not in made),
        )

    async def purge(self, *, older_than: Duration, task: str | None = None) -> int:
        """Removes dead letters buried longer ago than that, for good; only those of a task, if one is
        given.

        `older_than=0` removes all. Returns how many it removed.

        Raises:
            TypeError, ValueError: no usable length of time.
        """
        age_ms = length_ms(older_than, "older_than", zero=True)
        store = await self._queue._store()
        if task is None and age_ms:
            return await store.trim(age_ms=age_ms, count=_EVERY)
        removed = 0
        batch: list[str] = []
        async with aclosing(self._all(task, None, age_ms)) as jobs:
            async for job in jobs:
                batch.append(job.job_id)
                if len(batch) == BATCH:
                    removed += sum(await store.purge(batch))
                    batch = []
        return removed + (sum(await store.purge(batch)) if batch else 0)

    async def _all(self, task: str | None, error: str | None, age_ms: int = 0) -> AsyncGenerator[Found, None]:
        """Of all shards, oldest burial first."""
        parts = parts_of(await self._queue._store())
        async with AsyncExitStack() as stack:
            streams = [
                await stack.enter_async_context(aclosing(_dead_of(part, task, error, age_ms)))
                for part in parts
            ]
            heads = [await anext(stream, None) for stream in streams]
            while True:
                waiting = [(head.at_ms, n) for n, head in enumerate(heads) if head is not None]
                if not waiting:
                    return
                _, first = min(waiting)
                job, heads[first] = heads[first], await anext(streams[first], None)
                if job is not None:
                    yield job


async def _dead_of(
    store: QueueStore, task: str | None, error: str | None, age_ms: int
) -> AsyncGenerator[Found, None]:
    """Of one shard. Pages overlap by one job. If a page does not begin with one that was seen, jobs before it
    have gone and others moved into their places: then it steps back."""
    seen: set[tuple[str, int]] = set()
    given: set[str] = set()  # a job that is buried again meanwhile is not given again
    offset, newest = 0, -1
    while True:
        page = await store.peek("dead", limit=BATCH, offset=offset)
        if newest < 0:
            newest = page.now_ms - age_ms
        if offset and (not page.jobs or _key(page.jobs[0]) not in seen):
            offset = max(0, offset - BATCH + 1)
            continue
        fresh = [job for job in page.jobs if job.job_id not in given and job.at_ms <= newest]
        seen.update(map(_key, page.jobs))
        given.update(job.job_id for job in fresh)
        for job in fresh:
            if matches(job, task, error):
                yield job
        if len(page.jobs) < BATCH or (not fresh and page.jobs[-1].at_ms > newest):
            return
        offset += BATCH - 1


def _key(job: Found) -> tuple[str, int]:
    return job.job_id, job.at_ms
