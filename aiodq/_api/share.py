"""A queue's part of a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

from msgspec import Struct

from aiodq._core.answers import DeadRetention
from aiodq._core.errors import ConfigError
from aiodq._core.handler import Handler
from aiodq._core.store import Store


@runtime_checkable
class ServedQueue(AbstractAsyncContextManager[object], Protocol):
    """What a worker needs of a queue; `aiodq.Queue` is one."""

    @property
    def name(self) -> str: ...

    @property
    def _retention(self) -> DeadRetention: ...

    async def _agree(self) -> None: ...
    def _stores(self) -> Sequence[Store]:
        """Its shards, opened in the running event loop."""
        ...

    def _handlers(self) -> Mapping[str, Handler]:
        """The tasks that this process can run, by name."""
        ...


class Share(Struct, frozen=True):
    """A queue in a worker that serves several.

    Attributes:
        queue: the queue.
        weight: its part of the slots when several queues want more than there are; 1 or more.
        concurrency: the most slots it may take; None: as many as the worker has.
        priority: queues of a higher priority are given slots first, and the others what is left: they may
            starve.

    Raises:
        ConfigError: a value is outside its range.
    """

    queue: ServedQueue
    weight: int = 1
    concurrency: int | None = None
    priority: int = 0

    def __post_init__(self) -> None:
        _queue(self.queue)
        _whole("Share.weight", self.weight, least=1)
        if self.concurrency is not None:
            _whole("Share.concurrency", self.concurrency, least=1)
        _whole("Share.priority", self.priority, least=None)


def _queue(value: object) -> None:
    if not isinstance(value, ServedQueue):
        raise ConfigError(f"expected Share.queue to be a Queue, got {value!r}")


def _whole(name: str, value: object, *, least: int | None) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or (least is not None and value < least):
        wanted = "a whole number" if least is None else f"a whole number of at least {least}"
        raise ConfigError(f"expected {name} to be {wanted}, got {value!r}")
