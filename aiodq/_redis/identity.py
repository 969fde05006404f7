"""Which server a link leads to: asked with the first call on each new connection, to notice a failover."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from aiodq._redis.faults import Lost

_QUESTIONS: Final = (b"*2\r\n$4\r\nINFO\r\n$6\r\nserver\r\n", b"*2\r\n$4\r\nINFO\r\n$11\r\nreplication\r\n")
_ANSWERS: Final = (b"run_id:", b"master_replid:")
"""The process, which is another one after a restart too; and the history of writes that it goes on with,
which is another one after a promotion."""


class Identity:
    """Compares what connections lead to, one after another, and tells when it is another server than before:
    it may lack the last writes. Where INFO is not allowed, every new connection counts as another server.
    """

    def __init__(self) -> None:
        self._server: tuple[bytes, ...] | None = None
        self._told: list[Callable[[], None]] = []

    def on_other(self, tell: Callable[[], None]) -> None:
        self._told.append(tell)

    def forget(self, tell: Callable[[], None]) -> None:
        if tell in self._told:
            self._told.remove(tell)

    def questions(self) -> list[tuple[bytes, asyncio.Future[object]]]:
        """What to send first on a new connection; the futures are to be given the replies."""
        loop = asyncio.get_running_loop()
        futures: list[asyncio.Future[object]] = [loop.create_future() for _ in _QUESTIONS]
        futures[-1].add_done_callback(lambda _: self._answered(futures))
        return list(zip(_QUESTIONS, futures, strict=True))

    def _answered(self, futures: list[asyncio.Future[object]]) -> None:
        replies = [future.result() for future in futures]
        found = [_line(reply, wanted) for reply, wanted in zip(replies, _ANSWERS, strict=True)]
        if b"lost" in found:  # with the connection; the next one is asked again
            return
        before, self._server = self._server, tuple(found)
        if before is not None and before != self._server:
            for tell in list(self._told):
                tell()


def _line(reply: object, wanted: bytes) -> bytes:
    if isinstance(reply, bytes):
        return next((line for line in reply.splitlines() if line.startswith(wanted)), b"unknown")
    return b"lost" if isinstance(reply, Lost) else str(time.monotonic()).encode()
