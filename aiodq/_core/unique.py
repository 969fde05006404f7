"""Unique jobs: of those that mean the same, one is enough for a while."""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct

from aiodq._core.durations import Duration, length_ms
from aiodq._core.errors import ConfigError

Mode = Literal["first", "last"]


class Unique(Struct, frozen=True):
    """While a job waits or runs, and for at most `window` after it was enqueued, no second one is made.

    Args:
        window: seconds or timedelta, above zero.
        key: name of a parameter of the handler: one job for each of its values; None: one for the task.
        mode: what a further enqueue does meanwhile. "first": nothing, the first job stays as it is
            (throttle). "last": a job that waits gets the new arguments and due time, but not one after the
            end of its window; beside one that runs a new one is made (debounce).

    Raises:
        ConfigError: a value that it cannot have.
    """

    window: Duration
    key: str | None = None
    mode: Mode = "first"

    def __post_init__(self) -> None:
        try:
            length_ms(self.window, "Unique.window")
        except (TypeError, ValueError) as error:
            raise ConfigError(str(error)) from error
        if self.key is not None and (type(self.key) is not str or not self.key):
            raise ConfigError(f"Unique.key={self.key!r}: expected the name of a parameter of the handler")
        if self.mode not in get_args(Mode):
            raise ConfigError(f'Unique.mode={self.mode!r}: expected "first" or "last"')

    @property
    def window_ms(self) -> int:
        return length_ms(self.window, "window")


class Hold(Struct, frozen=True, gc=False):
    """What makes one job unique: its name among the queue's, for how long, and the mode."""

    name: str
    window_ms: int
    mode: Mode = "first"
