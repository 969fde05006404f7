"""Runs jobs under suspicion alone, so that the next crash can only be their own.

A worker that dies takes innocent jobs down with it. The first crash of a job therefore means nothing, and it
runs as usual. From the second on it waits, under its lease, until nothing else runs in this worker, and runs
alone. Meanwhile no slot is given out, and further suspects go back at once, uncounted: the worker must hold
none of them when this one kills it. After a suspect slots are given out one by one (`Slots.narrow`) until a
job comes that is not one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from aiodq._core.handler import Call
from aiodq._worker.running import Run
from aiodq._worker.slots import Slots

SUSPECT_CRASHES: Final = 2
PATIENCE_S: Final = 60.0
"""How long a suspect waits for the other jobs of the worker to end; then it is given back, uncounted."""


class Isolation:
    """The one suspect of this worker: waiting for the others to end, or running alone.

    Args:
        begin: starts the suspect.
        give_up: gives a suspect back that waited too long.
        reopened: slots are given out again.
    """

    def __init__(
        self,
        slots: Slots,
        loop: asyncio.AbstractEventLoop,
        *,
        begin: Callable[[Run, Call], None],
        give_up: Callable[[Run], None],
        reopened: Callable[[], None],
    ) -> None:
        self._slots = slots
        self._loop = loop
        self._begin = begin
        self._give_up = give_up
        self._reopened = reopened
        self._waiting: tuple[Run, Call] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def busy(self) -> bool:
        """There is a suspect: no other can be taken in."""
        return self._slots.closed

    @property
    def alone(self) -> bool:
        """A suspect runs: nothing else may begin."""
        return self._slots.closed and self._waiting is None

    def hold(self, run: Run, call: Call) -> None:
        """Keeps a suspect until nothing else runs; `check` must follow when the rest of its batch has
        begun.
        """
        self._slots.closed = True
        self._waiting = run, call
        self._timer = self._loop.call_later(PATIENCE_S, self._too_long, run)

    def check(self, *, active: int, held: int) -> None:
        """`active` handlers run, and `held` leases are this worker's: starts the suspect when there is
        nothing but it, or reopens after it."""
        if active or not self._slots.closed or (self._waiting is not None and held > 1):
            return
        waiting = self._take()
        if waiting is not None:
            self._begin(*waiting)
        else:
            self._reopen(narrow=True)

    def release(self) -> Run | None:
        """For a shutdown: the suspect that waits, which will not be run here."""
        waiting = self._take()
        return None if waiting is None else waiting[0]

    def forget(self, run: Run) -> None:
        """That run has lost its lease: if it is the suspect that waits, there is none any more."""
        if self._waiting is not None and self._waiting[0] is run:
            self._take()

    def _take(self) -> tuple[Run, Call] | None:
        waiting, self._waiting = self._waiting, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return waiting

    def _too_long(self, run: Run) -> None:
        self._take()
        self._reopen(narrow=False)
        self._give_up(run)

    def _reopen(self, *, narrow: bool) -> None:
        self._slots.closed, self._slots.narrow = False, narrow
        self._reopened()
