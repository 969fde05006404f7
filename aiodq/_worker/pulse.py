"""Notices from another thread that the worker's event loop stands still, and says so while it does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Final

log: Final = logging.getLogger("aiodq.worker")

PERIOD_S: Final = 0.25
IDLE_PERIOD_S: Final = 1.0
BLOCKED_S: Final = 1.0
"""A loop that does not answer for this long is blocked."""

NAMES_SHOWN: Final = 10
FRAMES_SHOWN: Final = 6


class Pulse:
    """Made in the worker's loop; `watch` runs in the keeper's. Asks nothing while no handler runs.

    Args:
        running: names of the running handlers; called in the keeper's thread.
        on_blocked: told in the worker's loop, when it goes on, how long it stood still and what ran then.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        running: Callable[[], list[str]],
        on_blocked: Callable[[float, tuple[str, ...]], None],
    ) -> None:
        self._main = loop
        self._main_thread = threading.get_ident()
        self._running = running
        self._on_blocked = on_blocked
        self._asked_at = 0.0
        self._answered_at = 0.0
        self._blocked: tuple[str, ...] | None = None

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            if self._asked_at <= self._answered_at:
                names = self._running()
                if not names:
                    await asyncio.sleep(IDLE_PERIOD_S)
                    continue
                self._asked_at = time.monotonic()
                with contextlib.suppress(RuntimeError):  # closed: the worker ends
                    self._main.call_soon_threadsafe(self._answer)
            elif self._blocked is None and time.monotonic() - self._asked_at >= BLOCKED_S:
                self._blocked = tuple(self._running()[:NAMES_SHOWN])
                self._warn(self._blocked)
            await asyncio.sleep(PERIOD_S)

    def _answer(self) -> None:
        self._answered_at = time.monotonic()
        blocked, self._blocked = self._blocked, None
        if blocked is not None:
            self._on_blocked(self._answered_at - self._asked_at, blocked)

    def _warn(self, names: tuple[str, ...]) -> None:
        frame = sys._current_frames().get(self._main_thread)
        where = "".join(traceback.format_stack(frame)[-FRAMES_SHOWN:]) if frame is not None else "(unknown)"
        log.warning(
            "the event loop has been blocked for %.1f s, in task %s; handlers running: %s; it is at\n%s",
            time.monotonic() - self._asked_at,
            self._current(),
            ", ".join(names) or "none",
            where.rstrip(),
        )

    def _current(self) -> str:
        with contextlib.suppress(Exception):  # read from another thread: may be gone in between
            task = asyncio.current_task(self._main)
            if task is not None:
                return task.get_name()
        return "(unknown)"
