"""taskiq with taskiq-redis: the stream broker (at least once) and the list schedule source; worker and
scheduler in one process, as its API offers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from taskiq import TaskiqScheduler
from taskiq.api import run_receiver_task, run_scheduler_task
from taskiq_redis import ListRedisScheduleSource, RedisStreamBroker

from benchmarks.contenders.protocol import TASKS, Contender, Setup, When, serve

LOOK = timedelta(seconds=1)
"""How often the scheduler reads new schedules; each minute by default, which makes nearer ones late."""


class Taskiq(Contender):
    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        lease_ms = int(setup.lease_s * 1000)
        self.broker = RedisStreamBroker(
            setup.url,
            queue_name=setup.name,
            consumer_id="0",
            idle_timeout=lease_ms,
            unacknowledged_lock_timeout=setup.lease_s,
            socket_timeout=None,  # redis-py's 5 s would cut its blocking reads short
        )
        self.source = ListRedisScheduleSource(setup.url)
        self.tasks = {name: self.broker.task(task_name=name)(fn) for name, fn in TASKS.items()}

    async def open(self) -> None:
        await self.broker.startup()

    async def enqueue(self, task: str, value: object, when: When) -> None:
        if when.after is not None:
            due = datetime.now(UTC) + timedelta(seconds=when.after)
            await self.tasks[task].schedule_by_time(self.source, due, value)
        elif when.at is not None:
            due = datetime.fromtimestamp(when.at / 1000, UTC)
            await self.tasks[task].schedule_by_time(self.source, due, value)
        else:
            await self.tasks[task].kiq(value)

    async def work(self) -> None:
        scheduler = TaskiqScheduler(self.broker, [self.source])
        self.running = [
            asyncio.create_task(run_receiver_task(self.broker, max_async_tasks=self.setup.concurrency)),
            asyncio.create_task(run_scheduler_task(scheduler, run_startup=True, interval=LOOK)),
        ]

    async def close(self) -> None:
        for task in getattr(self, "running", []):
            task.cancel()


if __name__ == "__main__":
    serve(Taskiq)
