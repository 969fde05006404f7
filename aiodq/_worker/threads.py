"""Runs plain functions in threads, as many at a time as the worker has slots."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import anyio
import anyio.to_thread


class Threads:
    """The worker's threads. A thread cannot be cancelled, so a cancelled call still waits for its end: its
    slot is taken as long as it runs, and what it returns counts. `RunningJob.stopping` tells it that it
    should end.
    """

    def __init__(self, count: int) -> None:
        self._limiter = anyio.CapacityLimiter(count)

    async def __call__(self, function: Callable[[], object], /) -> object:
        """Runs it in a thread, in a copy of the caller's context; raises what it raises."""
        end = asyncio.ensure_future(anyio.to_thread.run_sync(_end_of, function, limiter=self._limiter))
        while not end.done():
            try:
                await asyncio.wait((end,))
            except asyncio.CancelledError:
                # Kept in mind by the run itself (`Run.stopped`); the thread decides when this ends.
                continue
        value, error = end.result()
        if error is not None:
            raise error
        return value


def _end_of(function: Callable[[], object]) -> tuple[object, BaseException | None]:
    """Errors travel as values: SystemExit would end the event loop from a future, StopIteration cannot be in
    one.
    """
    try:
        return function(), None
    except BaseException as error:  # noqa: BLE001  # raised again by the caller
        return None, error
