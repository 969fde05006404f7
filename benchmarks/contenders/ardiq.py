"""ardiq (Rust core): defaults, but as many jobs at once as the others, and its idle timeout as the lease."""

from __future__ import annotations

import asyncio

from ardiq import Ardiq

from benchmarks.contenders.protocol import TASKS, Contender, Setup, When, serve


class ArdiqContender(Contender):
    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.app = Ardiq(
            redis_url=setup.url,
            queue_name=setup.name,
            concurrency=setup.concurrency,
            idle_timeout_ms=int(setup.lease_s * 1000),
        )
        self.tasks = {name: self.app.task(fn) for name, fn in TASKS.items()}

    def planned(self, task: str, when: When):
        if when.after is not None:
            return self.tasks[task].options(delay_ms=int(when.after * 1000))
        if when.at is not None:
            return self.tasks[task].options(schedule_ms=when.at)
        return self.tasks[task]

    async def enqueue(self, task: str, value: object, when: When) -> None:
        await self.planned(task, when).enqueue(value)

    async def bulk(self, task: str, jobs: list[tuple[object, When]]) -> None:
        for at in range(0, len(jobs), 1000):
            page = jobs[at : at + 1000]
            await self.app.enqueue_many([self.planned(task, when).prepare(value) for value, when in page])

    async def work(self) -> None:
        self.running = asyncio.create_task(self.app.run())

    async def close(self) -> None:
        if hasattr(self, "running"):
            self.app.stop()
            self.running.cancel()


if __name__ == "__main__":
    serve(ArdiqContender)
