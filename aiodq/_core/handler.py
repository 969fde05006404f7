"""A handler as the worker sees it: a name, its rules, and how to call it with a stored job's arguments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeAlias

from aiodq._core.envelope import Envelope
from aiodq._core.policy import Policy

InThread: TypeAlias = Callable[[Callable[[], object]], Awaitable[object]]
"""Runs a plain function in one of the worker's threads."""

Call: TypeAlias = Callable[[], Coroutine[Any, Any, object]]


class Handler(Protocol):
    """A task that this process can run."""

    @property
    def name(self) -> str: ...

    @property
    def policy(self) -> Policy:
        """The task's rules with those of its stub, queue and the library filled in; the call's own come from
        the job."""
        ...

    def prepare(self, envelope: Envelope, in_thread: InThread, /) -> Call:
        """Decodes the arguments to the handler's types; the returned call runs it once, providers of injected
        parameters included. Raises PayloadError when the arguments do not fit: a later run would not fit
        either."""
        ...

    def bucket(self, envelope: Envelope, /) -> str:
        """The bucket of its rate that a stored job belongs to. Raises as `prepare`."""
        ...

    def limited(self, envelope: Envelope, /) -> str:
        """What the limit is on that a stored job comes under. Raises as `prepare`."""
        ...
