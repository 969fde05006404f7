"""What is written down of a run: one line for each call, claim, start, end, settlement and fault.

Every process appends to a file of its own, a whole line in one write, so that a killed process leaves all it
had written. Times are the server's clock in ms (`at_ms`); the writer adds its offset from that clock.
`worker` is the name of a worker's process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

Ending: TypeAlias = Literal["ack", "retry", "release", "bury"]


class Asked(Struct, frozen=True, tag=True):
    """A producer is about to write a job. Its answer is an `Enqueued`; without one the outcome is unknown."""

    at_ms: float
    job_id: str


class Enqueued(Struct, frozen=True, tag=True):
    """The store said that the job is written (or was there already), due at `due_ms`."""

    at_ms: float
    job_id: str
    created: bool
    due_ms: int


class Cancelling(Struct, frozen=True, tag=True):
    """A producer is about to cancel; whether it did is in `Cancelled`, if that follows."""

    at_ms: float
    job_id: str


class Cancelled(Struct, frozen=True, tag=True):
    """The job was removed before it was run."""

    at_ms: float
    job_id: str


class Claimed(Struct, frozen=True, tag=True):
    """A worker was given a job; `at_ms` is when the server did so."""

    at_ms: float
    worker: str
    job_id: str
    fence: int
    due_ms: int
    lease_ms: int
    recovered: bool


class Started(Struct, frozen=True, tag=True):
    """A handler runs."""

    at_ms: float
    worker: str
    job_id: str
    fence: int


class Ended(Struct, frozen=True, tag=True):
    """A handler came to its end: `ok`, or with an error or cancelled."""

    at_ms: float
    worker: str
    job_id: str
    fence: int
    ok: bool


class Settling(Struct, frozen=True, tag=True):
    """A worker is about to write how a run ended; `Settled` follows, or nobody knows."""

    at_ms: float
    worker: str
    job_id: str
    fence: int
    ending: Ending


class Settled(Struct, frozen=True, tag=True):
    """The store's answer to a settlement sent at `sent_ms`."""

    at_ms: float
    sent_ms: float
    worker: str
    job_id: str
    fence: int
    ending: Ending
    accepted: bool


class Renewed(Struct, frozen=True, tag=True):
    """The store's answer to a renewal sent at `sent_ms`."""

    at_ms: float
    sent_ms: float
    worker: str
    job_id: str
    fence: int
    lease_ms: int
    accepted: bool


class Fault(Struct, frozen=True, tag=True):
    """Something was done to the system, until `until_ms`. `worker` is empty for what hits all of them."""

    at_ms: float
    kind: str
    worker: str = ""
    until_ms: float = 0.0


Event: TypeAlias = (
    Asked
    | Enqueued
    | Cancelling
    | Cancelled
    | Claimed
    | Started
    | Ended
    | Settling
    | Settled
    | Renewed
    | Fault
)

_DECODER: Final = msgspec.json.Decoder(Event)
_ENCODER: Final = msgspec.json.Encoder()


class Recorder:
    """Writes events of one process. `offset_ms`: the server's clock minus this machine's."""

    def __init__(self, folder: Path, name: str, *, offset_ms: float = 0.0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = os.open(folder / f"{name}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.name = name
        self.offset_ms = offset_ms

    def now_ms(self) -> float:
        return time.time() * 1000 + self.offset_ms

    def write(self, *events: Event) -> None:
        os.write(self._file, b"".join(_ENCODER.encode(event) + b"\n" for event in events))

    def close(self) -> None:
        os.close(self._file)


def read(folder: Path) -> list[Event]:
    """All events of all processes, by time. A line cut short by a kill is passed over."""
    events: list[Event] = []
    for file in sorted(folder.glob("*.jsonl")):
        events += _lines(file.read_bytes().split(b"\n"))
    return sorted(events, key=lambda event: event.at_ms)


def _lines(lines: Iterable[bytes]) -> list[Event]:
    found: list[Event] = []
    for line in lines:
        try:
            found.append(_DECODER.decode(line))
        except msgspec.DecodeError:
            continue
    return found
