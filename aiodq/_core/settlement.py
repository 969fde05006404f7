"""Settlements: the one write with which a run of a job ends.

The executor decides one of these values; the settler writes it. Each has its own constructor, so that wrong
combinations (a buried job with a delay, a released one with a counter) cannot be built.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from aiodq._core.due import Due

Outcome: TypeAlias = Literal["ack", "retry", "snooze", "release", "bury", "expire"]


class Acked(Struct, frozen=True, gc=False):
    """The job is done and leaves the queue: it ended well, or (`outcome="expire"`) its time had passed unrun.

    Attributes:
        remember: leave a done mark, so that its id is refused for the de-duplication window (caller-given
            ids).
    """

    job_id: str
    token: str
    remember: bool = False
    outcome: Literal["ack", "expire"] = "ack"


class Deferred(Struct, frozen=True, gc=False):
    """The job waits again until `due`: after a failure, a snooze, or (`release`) a hand-back that is to wait
    a while.

    Attributes:
        tally: the counters and error history to keep for it, written whole.
    """

    job_id: str
    token: str
    due: Due
    tally: bytes
    outcome: Literal["retry", "snooze", "release"] = "retry"


class Released(Struct, frozen=True, gc=False):
    """The job goes back to its own due time, uncounted: shutdown."""

    job_id: str
    token: str
    outcome: Literal["release"] = "release"


class Buried(Struct, frozen=True, gc=False):
    """The job goes to the dead letters; reason and history are in `tally`."""

    job_id: str
    token: str
    tally: bytes
    outcome: Literal["bury"] = "bury"


Settlement: TypeAlias = Acked | Deferred | Released | Buried
