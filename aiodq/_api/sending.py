"""Checked jobs on their way into a store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Literal, overload

from aiodq._core.due import NOW, Due
from aiodq._core.durations import Duration, delay_ms, instant_ms
from aiodq._core.errors import ConfigError
from aiodq._core.jobs import NewJob, to_entry, writer_of
from aiodq._core.store import Entry, Placed, QueueStore


class _Entries(Sequence[Entry]):
    """The entries of jobs, each made when a store takes it: of many jobs, the first are with the server
    then."""

    def __init__(self, jobs: list[NewJob[object]]) -> None:
        self._jobs = jobs

    def __len__(self) -> int:
        return len(self._jobs)

    @overload
    def __getitem__(self, at: int) -> Entry: ...
    @overload
    def __getitem__(self, at: slice) -> list[Entry]: ...
    def __getitem__(self, at: int | slice) -> Entry | list[Entry]:
        if isinstance(at, slice):
            return [to_entry(job) for job in self._jobs[at]]
        return to_entry(self._jobs[at])


def check_job(job: object, queue: str) -> None:
    """Raises TypeError for what is no NewJob, ConfigError for a job of another queue."""
    if not isinstance(job, NewJob):
        raise TypeError(f"expected a job made by task.job(…), got {job!r}")
    if job.queue != queue:
        raise ConfigError(f"{job!r} cannot be sent through queue {queue!r}: send it through its own")


async def place(store: QueueStore, jobs: Iterable[NewJob[object]]) -> list[Placed]:
    """Writes checked jobs, in their order; each kind of writing apart from the others."""
    placed: list[Placed] = []
    for writer, some in groupby(jobs, key=writer_of):
        placed += await write(store, writer, _Entries(list(some)))
    return placed


async def write(
    store: QueueStore, writer: Literal["enqueue", "replace", "unite"], entries: Sequence[Entry]
) -> list[Placed]:
    if writer == "enqueue":
        return await store.enqueue(entries)
    return await (store.replace(entries) if writer == "replace" else store.unite(entries))


def due_of(after: Duration | None, at: datetime | None, *, needed: bool) -> Due:
    """The due time given by one of two parameters; now, if it need not be given. Raises TypeError,
    ValueError."""
    if after is not None and at is not None:
        raise TypeError(f"after={after!r} and at={at!r}: expected one of them")
    if at is not None:
        return Due(instant_ms(at), relative=False)
    if after is not None:
        return Due(delay_ms(after))
    if needed:
        raise TypeError("expected after= (seconds or timedelta) or at= (an aware datetime)")
    return NOW


def check_args(args: object, kwargs: object) -> None:
    """Raises TypeError for what cannot be the arguments of `send`."""
    if not isinstance(args, tuple | list):
        raise TypeError(f"args={args!r}: expected a tuple or list; one argument is written args=(value,)")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise TypeError(f"kwargs={kwargs!r}: expected a mapping of names to values")
