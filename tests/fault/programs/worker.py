"""A real worker process for the fault laboratory: settings as one JSON argument, its deeds into a folder.

Tasks: `work(seconds)` ends well; `flaky(seconds, failures)` fails so often first; `block(seconds)` holds the
event loop; `die()` kills its process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import msgspec

from aiodq import Fixed, Queue, Worker, current_job
from tests.fault.events import Ended, Recorder, Started
from tests.fault.mutations import MUTATIONS, broken
from tests.fault.programs.settings import WorkerSettings
from tests.fault.recording import recording_workers

settings = msgspec.json.decode(sys.argv[1], type=WorkerSettings)
Path(settings.folder).mkdir(parents=True, exist_ok=True)
logging.basicConfig(filename=Path(settings.folder, f"worker-{os.getpid()}.log"), level=logging.INFO)
recorder = Recorder(Path(settings.folder), f"worker-{os.getpid()}", offset_ms=settings.offset_ms)
queue = Queue(settings.queue, url=settings.url, scripting=settings.scripting)


class Deed:
    """One run of a handler, written down from its start to its end."""

    def __enter__(self) -> None:
        job = current_job()
        self._job_id, self._fence = job.id, job.fence
        recorder.write(Started(recorder.now_ms(), recorder.name, self._job_id, self._fence))

    def __exit__(self, kind: object, *_: object) -> None:
        recorder.write(Ended(recorder.now_ms(), recorder.name, self._job_id, self._fence, kind is None))


@queue.task(backoff=Fixed(settings.backoff_s))
async def work(seconds: float) -> None:
    with Deed():
        await asyncio.sleep(seconds)


@queue.task(backoff=Fixed(settings.backoff_s), max_attempts=20)
async def flaky(seconds: float, failures: int) -> None:
    with Deed():
        await asyncio.sleep(seconds)
        if current_job().failures < failures:
            raise ValueError("as asked")


@queue.task
async def block(seconds: float) -> None:
    with Deed():
        time.sleep(seconds)  # noqa: ASYNC251 - blocking the loop is what this one is for


@queue.task
async def die() -> None:
    with Deed():
        os.kill(os.getpid(), signal.SIGKILL)


async def main() -> None:
    worker = Worker(
        queue,
        concurrency=settings.concurrency,
        lease=settings.lease_s,
        grace=settings.grace_s,
        presence=settings.presence,
    )
    watching = asyncio.create_task(say_ready(worker))
    lacking = broken(MUTATIONS[settings.mutation]) if settings.mutation else nullcontext()
    with recording_workers(recorder), lacking:
        await worker.run()
    watching.cancel()


async def say_ready(worker: Worker) -> None:
    while not worker.health().consuming:  # noqa: ASYNC110 - health is a question, not an event
        await asyncio.sleep(0.01)
    print("ready", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
