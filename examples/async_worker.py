"""A worker as part of an async program of your own, with resources that its handlers share.

Shows: `lifespan` with typed state, `current_job(State)`, an own `main()` around `worker.run()`.
Run:   AIODQ_URL=embedded://./data python examples/async_worker.py
       Ctrl-C or SIGTERM stops it. The same worker without this main(): aiodq worker async_worker:worker
       Give it work: AIODQ_URL=embedded://./data python examples/async_worker.py ada@example.org
"""

import logging
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from aiodq import Queue, Worker, current_job

mail = Queue("mail")  # no url: AIODQ_URL, else REDIS_URL


@dataclass
class Mailer:
    """Stands for a connection pool: opened once, used by all handlers."""

    sent: list[str] = field(default_factory=list[str])

    async def send(self, address: str, text: str) -> None:
        await anyio.sleep(0.01)
        self.sent.append(address)
        print(f"to {address}: {text}", flush=True)


@asynccontextmanager
async def open_mailer() -> AsyncGenerator[Mailer]:
    mailer = Mailer()
    yield mailer
    print(f"the mailer closes after {len(mailer.sent)} mails", flush=True)


@mail.task(max_attempts=3, timeout=10)
async def remind(address: str) -> None:
    job = current_job(Mailer)
    await job.state.send(address, f"your basket waits (attempt {job.attempt})")


worker = Worker(mail, concurrency=20, grace=5, lifespan=open_mailer)


async def main() -> None:
    logging.basicConfig(level=logging.INFO)
    if addresses := sys.argv[1:]:
        async with mail:
            await mail.enqueue_many([remind.after(seconds=1).job(address) for address in addresses])
    else:
        await worker.run()


if __name__ == "__main__":
    anyio.run(main)
