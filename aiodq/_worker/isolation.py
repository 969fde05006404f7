"""Runs jobs under suspicion alone, so that the next crash can only be their own.

A worker that dies takes innocent jobs down with it. The first crash of a job therefore means nothing, and it
runs as usual. From the second on it waits, under its lease, until nothing else runs in this worker, and runs
alone. Only a job that was alone can reach the usual limit of three, so no innocent one is buried.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from aiodq._core.handler import Call
from aiodq._worker.running import Run
from aiodq._worker.slots import Slots

SUSPECT_CRASHES: Final = 2
PATIENCE_S: Final = 60.0
"""How long a suspect waits for the other jobs of the worker to end; then it is given back, uncounted."""

Suspect: TypeAlias = tuple[Run, Call]


class Isolation:
    """Suspects that wait for this worker to be empty, and the one that runs alone. Meanwhile no slot is given
    out.

    Args:
        begin: starts a suspect.
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
        self._waiting: deque[Suspect] = deque()
        self._timers: dict[Run, asyncio.TimerHandle] = {}
        self._alone: Run | None = None

    @property
    def alone(self) -> bool:
        """A suspect runs: nothing else may begin."""
        return self._alone is not None

    def hold(self, run: Run, call: Call) -> None:
        """Keeps a suspect until nothing else runs; `check` must follow when the rest of its batch has
        begun.
        """
        self._slots.closed = True
        self._waiting.append((run, call))
        self._timers[run] = self._loop.call_later(PATIENCE_S, self._too_long, run)

    def check(self, active: int) -> None:
        """`active` handlers run: with none, starts the next suspect, or reopens after the last."""
        if active or not self._slots.closed:
            return
        self._alone = None
        if self._waiting:
            run, call = self._waiting.popleft()
            self._timers.pop(run).cancel()
            self._alone = run
            self._begin(run, call)
        else:
            self._slots.closed = False
            self._reopened()

    def release_all(self) -> list[Run]:
        """For a shutdown: the suspects that wait, which will not be run here."""
        waiting = [run for run, _ in self._waiting]
        self._waiting.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        return waiting

    def forget(self, run: Run) -> None:
        """That suspect's lease was lost while it waited."""
        self._waiting = deque(suspect for suspect in self._waiting if suspect[0] is not run)
        timer = self._timers.pop(run, None)
        if timer is not None:
            timer.cancel()

    def _too_long(self, run: Run) -> None:
        self._timers.pop(run, None)
        if self._alone is not None:
            # Another suspect is running: this one's turn is next, and innocent jobs do not delay it.
            self._timers[run] = self._loop.call_later(PATIENCE_S, self._too_long, run)
            return
        self.forget(run)
        self._give_up(run)
        if not self._waiting:
            self._slots.closed = False
            self._reopened()
