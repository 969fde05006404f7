"""Outages of a link, 0.1 to 30 s long, with whole workers: work resumes within two seconds of its return.

Several workers, each on a link of its own, are hurt side by side. `AIODQ_TEST_OUTAGES` is the number of
outages (20 of up to 3 s by default; with the variable set, of up to 30 s).

A connection whose other end vanished without a word is no such outage, since it never returns: see
`test_b90_a_dead_subscription_is_noticed_and_replaced` and `test_b96_…` for how long that may cost.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import time
from collections.abc import Callable

import pytest

from aiodq.events import JobSettled
from tests.fault.line import Line, open_line
from tests.servers import ServerProcess

pytestmark = pytest.mark.slow

ASKED = os.environ.get("AIODQ_TEST_OUTAGES")
OUTAGES = int(ASKED or "20")
LONGEST_S = 30.0 if ASKED else 3.0
SHORTEST_S = 0.1
EACH = 10
"""Outages of one link, one after the other."""

RESUME_S = 2.0
LEASE_S = 15.0

KINDS = ("refused", "black hole", "black hole to the server", "black hole from the server")


def hurt(line: Line, kind: str) -> Callable[[], None]:
    """Begins an outage; the answer ends it."""
    proxy = line.proxy
    match kind:
        case "black hole":
            proxy.hold()
        case "black hole to the server":
            proxy.hold("up")
        case "black hole from the server":
            proxy.hold("down")
        case _:
            proxy.refuse = True
            proxy.cut()

    def heal() -> None:
        proxy.refuse = False
        proxy.go_on()

    return heal


async def suffer(line: Line, dice: random.Random, resumed_s: list[float]) -> None:
    """A job runs while the link breaks, one becomes due during the outage, and one is enqueued through the
    link."""
    for n in range(EACH):
        length_s = math.exp(dice.uniform(math.log(SHORTEST_S), math.log(LONGEST_S)))
        await line.put(f"running-{n}", length_s / 2)
        await line.started(f"running-{n}")
        heal = hurt(line, kind := dice.choice(KINDS))
        await line.put(f"due-{n}", after_s=length_s * dice.random())
        await asyncio.sleep(length_s)
        heal()
        back = time.monotonic()
        await line.started(f"due-{n}", within_s=10)
        resumed_s.append(next(at for name, at in line.starts if name == f"due-{n}") - back)
        assert resumed_s[-1] <= RESUME_S, f"{kind} of {length_s:.1f} s"
        placed = await line.served.stub("work").options(job_id=f"after-{n}").enqueue(0.0)
        assert placed.created
        await line.started(f"after-{n}", within_s=RESUME_S)
        assert time.monotonic() - back <= 2 * RESUME_S
        await line.ended()


async def test_work_resumes_within_two_seconds_of_each_outage(valkey: ServerProcess, queue_name: str) -> None:
    resumed_s: list[float] = []

    async def link(number: int) -> None:
        dice = random.Random(number)
        async with open_line(valkey, f"{queue_name}-{number}", lease=LEASE_S) as line:
            await suffer(line, dice, resumed_s)
            outcomes = [event.outcome for event in line.events if isinstance(event, JobSettled)]
            assert set(outcomes) == {"ack"}
            names = [name for name, _ in line.starts]
            assert len(names) == len(set(names)) == 3 * EACH, "each ran once"

    async with asyncio.TaskGroup() as group:
        for number in range(math.ceil(OUTAGES / EACH)):
            group.create_task(link(number))
    print(f"{len(resumed_s)} outages, work resumed after {max(resumed_s):.2f} s at most")
    assert len(resumed_s) >= OUTAGES
