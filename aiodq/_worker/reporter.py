"""Tells events to listeners, none of which can harm the worker."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from aiodq._worker.events import Event

log: Final = logging.getLogger("aiodq.worker")


class Reporter:
    """Calls listeners in the worker's event loop. `active` is False without listeners: then build no
    event.
    """

    def __init__(self, listeners: Sequence[Callable[[Event], object]]) -> None:
        self._listeners = tuple(listeners)
        self.active = bool(self._listeners)

    def tell(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except BaseException:  # a listener may raise anything; jobs go on
                log.exception("listener %r failed on %s", listener, type(event).__name__)
