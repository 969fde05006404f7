"""aiodq from this checkout, through its public interface; every safety is on, as always."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from aiodq import Plan, Queue, Worker
from benchmarks.contenders.protocol import TASKS, Contender, Setup, When, serve


class Aiodq(Contender):
    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.queue = Queue(setup.name, url=setup.url)
        self.tasks = {name: self.queue.task(fn) for name, fn in TASKS.items()}
        self.workers = [
            Worker(self.queue, concurrency=setup.concurrency, lease=setup.lease_s, grace=1)
            for _ in range(setup.workers)
        ]

    async def open(self) -> None:
        await self.queue.__aenter__()

    async def enqueue(self, task: str, value: object, when: When) -> None:
        await self._plan(task, when).enqueue(value)

    async def bulk(self, task: str, jobs: list[tuple[object, When]]) -> None:
        await self.queue.enqueue_many([self._plan(task, when).job(value) for value, when in jobs])

    def _plan(self, task: str, when: When) -> Plan[Any, Any]:
        plan: Plan[Any, Any] = self.tasks[task]
        if when.after is not None:
            return plan.after(when.after)
        if when.at is not None:
            return plan.at(datetime.fromtimestamp(when.at / 1000, UTC))
        return plan

    async def work(self) -> None:
        for worker in self.workers:
            await worker.__aenter__()

    async def pause(self) -> None:
        await self.queue.pause()

    async def close(self) -> None:
        for worker in self.workers:
            worker.cut_short()
        for worker in self.workers:
            await worker.__aexit__(None, None, None)
        await self.queue.__aexit__(None, None, None)


if __name__ == "__main__":
    serve(Aiodq)
