"""BullMQ for Python: defaults, but as many jobs at a time as the others, ended jobs removed, and its lock and
stalled check of one lease."""

from __future__ import annotations

import time

from bullmq import Queue, Worker

from benchmarks.contenders.protocol import TASKS, Contender, When, serve


class Bullmq(Contender):
    async def open(self) -> None:
        self.queue = Queue(self.setup.name, {"connection": self.setup.url})

    @staticmethod
    def options(when: When) -> dict[str, object]:
        delay = 0
        if when.after is not None:
            delay = int(when.after * 1000)
        elif when.at is not None:
            delay = max(0, when.at - int(time.time() * 1000))
        return {"delay": delay, "removeOnComplete": True, "removeOnFail": True}

    async def enqueue(self, task: str, value: object, when: When) -> None:
        await self.queue.add(task, {"value": value}, self.options(when))

    async def bulk(self, task: str, jobs: list[tuple[object, When]]) -> None:
        for at in range(0, len(jobs), 1000):
            page = jobs[at : at + 1000]
            await self.queue.addBulk(
                [{"name": task, "data": {"value": value}, "opts": self.options(when)} for value, when in page]
            )

    async def work(self) -> None:
        async def process(job, token):
            await TASKS[job.name](job.data["value"])

        lease_ms = int(self.setup.lease_s * 1000)
        self.worker = Worker(
            self.setup.name,
            process,
            {
                "connection": self.setup.url,
                "concurrency": self.setup.concurrency,
                "lockDuration": lease_ms,
                "stalledInterval": lease_ms,
            },
        )

    async def close(self) -> None:
        if hasattr(self, "worker"):
            await self.worker.close(force=True)
        await self.queue.close()


if __name__ == "__main__":
    serve(Bullmq)
