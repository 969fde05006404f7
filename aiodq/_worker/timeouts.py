"""Stops handlers at their time limit, with one timer for all of them.

A timer per job would cost more than the rest of an empty job, and leave thousands of cancelled ones in the
event loop's heap; a look over the running jobs at the nearest deadline costs next to nothing.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable
from typing import Final

from aiodq._worker.running import Run
from aiodq._worker.shard import STUCK_AFTER_S

log: Final = logging.getLogger("aiodq.worker")


class Timeouts:
    """One timer at the nearest deadline of the runs that `running` gives.

    `next`: that deadline; whoever sets an earlier one on a run calls `watch` with it.
    """

    def __init__(self, running: Callable[[], Iterable[Run]], loop: asyncio.AbstractEventLoop) -> None:
        self.next = math.inf
        self._running = running
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, deadline: float) -> None:
        """Looks at the runs at that moment, or earlier."""
        if deadline >= self.next:
            return
        if self._timer is not None:
            self._timer.cancel()
        self.next = deadline
        self._timer = self._loop.call_later(max(0.0, deadline - time.monotonic()), self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self.next = None, -math.inf

    def _look(self) -> None:
        self._timer, self.next = None, math.inf
        now, nearest = time.monotonic(), math.inf
        for run in self._running():
            if run.ended:
                continue
            if run.deadline <= now:
                self._due(run, now)
            nearest = min(nearest, run.deadline)
        if nearest < math.inf:
            # Loops with coarse clocks fire a little early; a millisecond more keeps that from spinning.
            self.watch(max(nearest, now + 0.001))

    def _due(self, run: Run, now: float) -> None:
        if run.stopped is None:
            run.deadline = now + STUCK_AFTER_S
            run.stop("timeout")
        else:
            run.deadline = math.inf
            run.stuck = True
            log.error(
                "the handler of job %s (task %s) ignores its cancellation (%s): "
                "its slot stays taken until it ends, its lease is left to others",
                run.job_id,
                run.task,
                run.stopped,
            )
