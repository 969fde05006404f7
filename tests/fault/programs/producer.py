"""A real producer process for the fault laboratory: writes jobs until it is stopped or killed, and
notes what it was promised. Settings as one JSON argument (`ProducerSettings`)."""

from __future__ import annotations

import asyncio
import os
import random
import sys
from pathlib import Path

import msgspec

from aiodq import AiodqError, NewJob, Queue
from tests.fault.events import Recorder
from tests.fault.programs.settings import ProducerSettings
from tests.fault.recording import recording_producer

settings = msgspec.json.decode(sys.argv[1], type=ProducerSettings)


async def main() -> None:
    dice = random.Random(settings.seed)
    recorder = Recorder(Path(settings.folder), f"producer-{os.getpid()}", offset_ms=settings.offset_ms)
    async with Queue(settings.queue, url=settings.url, scripting=settings.scripting) as queue:
        work, flaky = queue.stub("work"), queue.stub("flaky")

        def job() -> NewJob[object]:
            if dice.random() < settings.flaky:
                return flaky.after(dice.random() * settings.delay_s).job(0.01, dice.randint(1, 2))
            return work.after(dice.random() * settings.delay_s).job(dice.random() ** 3 * settings.run_s)

        print("ready", flush=True)
        with recording_producer(recorder):
            while True:
                jobs = [job() for _ in range(settings.batch)]
                try:
                    await queue.enqueue_many(jobs)
                    if dice.random() < settings.cancels * settings.batch:
                        await queue.cancel(dice.choice(jobs).id)
                except AiodqError:
                    pass  # nobody was promised anything
                await asyncio.sleep(settings.batch / settings.per_s)


if __name__ == "__main__":
    asyncio.run(main())
