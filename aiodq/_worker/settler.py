"""Collects what the executor decided, for the next turn to write."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from aiodq._core.store import BATCH
from aiodq._worker.running import Run


class Settler:
    """Ended runs of one shard whose settlement is not yet accepted, in the order of their ends.

    `solo`: how many are to be sent one by one. After a batch was refused as a whole, this finds the one at
    fault, so that one broken job cannot keep its neighbours from being settled.
    """

    def __init__(self) -> None:
        self._runs: deque[Run] = deque()
        self._solo = 0

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def solo(self) -> bool:
        """The next settlements go one by one, and without a claim beside them."""
        return self._solo > 0

    def add(self, run: Run) -> None:
        self._runs.append(run)

    def take(self) -> list[Run]:
        """The next runs to settle, at most a batch."""
        runs = self._runs
        if self._solo:
            self._solo -= 1
            return [runs.popleft()] if runs else []
        if len(runs) <= BATCH:
            taken = list(runs)
            runs.clear()
            return taken
        return [runs.popleft() for _ in range(BATCH)]

    def put_back(self, runs: Sequence[Run], *, one_by_one: bool = False) -> None:
        """They were not written: first again in the next turn."""
        self._runs.extendleft(reversed(runs))
        if one_by_one:
            self._solo = max(self._solo, len(runs))
