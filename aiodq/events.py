"""Events of a worker, for `Worker(listeners=…)`. The union is open: end a match with `case _`."""

from __future__ import annotations

from aiodq._worker.events import (
    ClockStepped,
    Event,
    JobRecovered,
    JobSettled,
    JobStarted,
    LeaseMissed,
    LoopBlocked,
    StoreBack,
    StoreLost,
    TaskUnknown,
)

__all__ = [
    "ClockStepped",
    "Event",
    "JobRecovered",
    "JobSettled",
    "JobStarted",
    "LeaseMissed",
    "LoopBlocked",
    "StoreBack",
    "StoreLost",
    "TaskUnknown",
]
