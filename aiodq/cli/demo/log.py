"""What happened, as each process wrote it down itself: one append-only file of JSON lines per process.

A line is one `write` to a file opened for appending, so a process that is killed leaves whole lines behind,
and what it had not yet done is not written. The verdict rests on these files, not on anything in memory.

Moments named `at_ms` are the writer's wall clock (Unix ms, with fractions): good for durations on one
machine. Due times (`due_ms`) and lateness (`late_ms`) are the server's.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Self, TypeAlias

import msgspec
from msgspec import Struct


class Ready(Struct, frozen=True, tag="ready"):
    """A worker process is up."""

    worker: str
    at_ms: float


class Started(Struct, frozen=True, tag="started"):
    """A handler begins. `fence`: of the claim that gave the job; of two runs, the later has the greater."""

    worker: str
    job_id: str
    task: str
    fence: int
    attempt: int
    snoozes: int
    crashes: int
    interruptions: int
    due_ms: int
    late_ms: float
    at_ms: float


class Ended(Struct, frozen=True, tag="ended"):
    """A handler is over. `by`: "return", or the type of what it raised; `note`: what it did, for people."""

    worker: str
    job_id: str
    fence: int
    by: str
    note: str
    at_ms: float


class Settled(Struct, frozen=True, tag="settled"):
    """The server accepted how the worker's last run of this job ended: ack, retry, snooze, release, bury."""

    worker: str
    job_id: str
    outcome: str
    at_ms: float


class Sent(Struct, frozen=True, tag="sent"):
    """The shop enqueued a job, and the call returned. `created` is false if the id was there already."""

    job_id: str
    order_id: str
    task: str
    due_ms: int
    created: bool
    at_ms: float


class Recalled(Struct, frozen=True, tag="recalled"):
    """The shop tried to take a job back; `made`: it was still scheduled and is gone now."""

    job_id: str
    made: bool
    was: str
    at_ms: float


class Killed(Struct, frozen=True, tag="killed"):
    """A worker process was killed (SIGKILL)."""

    worker: str
    at_ms: float


Record: TypeAlias = Ready | Started | Ended | Settled | Sent | Recalled | Killed


def now_ms() -> float:
    """This process's wall clock."""
    return time.time() * 1000


class Log:
    """A file that one process appends to."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, record: Record) -> None:
        """Append one line. It outlives the process from here on."""
        os.write(self._file, msgspec.json.encode(record) + b"\n")

    def close(self) -> None:
        """Give the file back; nothing is written after this."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Reader:
    """Follows a log file while another process writes it; `records` are all lines so far."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._decoder = msgspec.json.Decoder(Record)
        self.records: list[Record] = []

    def read(self) -> list[Record]:
        """The lines that came since the last call; none before the file exists. A line still without its end
        is left for the next call: its writer was killed in it, or is writing it."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                text = file.read()
        except FileNotFoundError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        fresh = [self._decoder.decode(line) for line in whole.splitlines()]
        self.records += fresh
        return fresh
