"""The clock of a store in memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

Clock: TypeAlias = Callable[[], int]
"""Gives the present in Unix microseconds. Called under the shard's lock, from any thread; must not block."""


def anchored_clock() -> Clock:
    """A clock that reads the wall once and then follows the monotonic clock, so that it never steps."""
    anchor_us = (time.time_ns() - time.monotonic_ns()) // 1000
    return lambda: anchor_us + time.monotonic_ns() // 1000
