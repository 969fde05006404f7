"""A job that is made and checked, but not yet sent."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final, Generic, Literal, TypeVar

import msgspec
from msgspec import Raw, Struct

from aiodq._core.due import Due
from aiodq._core.durations import to_instant
from aiodq._core.envelope import VERSION, Envelope, encode_envelope, plain_envelope
from aiodq._core.names import check_headers
from aiodq._core.options import CallSpec, OnDuplicate
from aiodq._core.store import Entry
from aiodq._core.unique import Hold

R_co = TypeVar("R_co", covariant=True)

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class NewJob(Struct, Generic[R_co], frozen=True, eq=False, gc=False):
    """A job that is made and checked, but not yet sent, as `task.job(…)` gives it.

    It has its id from birth: sending it again is a repeat, not a second job. Its arguments are stored as
    they were when it was made; later changes of a list among them do not count. (The garbage collector does
    not look into jobs, of which there may be many at a time: one put into its own arguments stays for ever.)

    Attributes:
        id: its id.
        queue: name of the queue it is for.
        task: name of its task.
        args: the arguments by position.
        kwargs: those by name.
        headers: strings that travel beside the arguments.
    """

    id: str
    queue: str
    task: str
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    headers: Mapping[str, str]
    _packed: tuple[bytes, bytes]
    _due: Due
    _spec: CallSpec
    _hold: Hold | None = None

    def __repr__(self) -> str:
        return f"<NewJob {self.id!r} for task {self.task!r} of queue {self.queue!r}>"

    @property
    def after(self) -> float | None:
        """Seconds from its sending until it is due; None for a job with a fixed time."""
        return self._due.ms / 1000 if self._due.relative else None

    @property
    def at(self) -> datetime | None:
        """When it is due (UTC); None for a job with a delay."""
        return None if self._due.relative else to_instant(self._due.ms)

    def with_headers(self, headers: Mapping[str, str]) -> NewJob[R_co]:
        """The same job, same id, with these headers added.

        Raises:
            TypeError, ValueError: headers that are not strings.
        """
        return msgspec.structs.replace(self, headers={**self.headers, **check_headers(headers)})


def due_of(job: NewJob[object]) -> Due:
    return job._due


def writer_of(job: NewJob[object]) -> Literal["enqueue", "replace", "unite"]:
    """How the job is written: the name of the store's method."""
    if job._hold is not None:
        return "unite"
    return "replace" if job._spec.on_duplicate == "replace" else "enqueue"


def on_duplicate_of(job: NewJob[object]) -> OnDuplicate:
    return job._spec.on_duplicate


def to_entry(job: NewJob[object]) -> Entry:
    """The job as stores take it."""
    spec = job._spec
    packed, named = job._packed
    if spec.carried is None and not job.headers:
        payload = plain_envelope(job.task, packed, named)
    else:
        headers = dict(job.headers) if job.headers else None
        payload = encode_envelope(Envelope(VERSION, job.task, Raw(packed), Raw(named), spec.carried, headers))
    return Entry(job.id, payload, job._due, spec.job_id is not None, job._hold)
