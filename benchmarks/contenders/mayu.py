"""mayu (Rust core): its worker in this process, with the visibility timeout as the lease. Its calls block:
one by one is what it offers."""

from __future__ import annotations

from datetime import UTC, datetime

from mayu import App
from mayu.worker import WorkerRunner

from benchmarks.contenders.protocol import TASKS, Contender, Setup, When, serve


class Mayu(Contender):
    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.app = App(broker=setup.url, default_queue=setup.name)
        self.tasks = {name: self.app.task(fn) for name, fn in TASKS.items()}

    async def enqueue(self, task: str, value: object, when: When) -> None:
        options = {}
        if when.after is not None:
            options["countdown"] = when.after
        elif when.at is not None:
            options["eta"] = datetime.fromtimestamp(when.at / 1000, UTC)
        self.tasks[task].send(value, **options)

    async def work(self) -> None:
        lease_s = self.setup.lease_s
        self.worker = WorkerRunner(
            self.app,
            threads=self.setup.concurrency,
            visibility_timeout=lease_s,
            heartbeat_interval=min(5.0, lease_s / 3),
        )
        self.worker.start()

    async def close(self) -> None:
        if hasattr(self, "worker"):
            self.worker.stop()


if __name__ == "__main__":
    serve(Mayu)
