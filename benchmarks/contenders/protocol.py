"""What every contender speaks: JSON lines over standard input and output, one answer for each question.

A contender's program calls `serve(itself)`. Its first argument is the setup, as JSON: `url`, `loop` ("plain"
or "uvloop"), `concurrency`, `lease_s`, `name` of the queue, and `threads` (the handlers will wait, for
libraries that then need threads), and `workers`, how many of them in one process (aiodq only).

    {"do": "enqueue", "how": "single|awaiters|bulk", "task": …, "count": …, "when": …}   -> seconds, cpu_s
    {"do": "work"}                                                                       -> {} once it runs
    {"do": "pause"}                                                                      -> {}
    {"do": "report"}                                     -> ends, first_start, last_end, cpu_s, rss_kb
    {"do": "starts"}                                     -> starts: [[value, wall clock], …] since the last
    {"do": "forget"}                                     -> {}: counts begin again
    {"do": "stop"}                                       -> {}; the program ends

`when`: {"after": seconds} from each call; {"at": Unix ms, "every": ms} for the first job and the steps to the
next; {} for now. Every task takes one value: `noop` and `io` a number, `mark` its due time in Unix ms (due
now: the moment of its call in Unix µs), `hold` a number, `pad` a text.

All times of day are `time.time()`: on one machine that is the clock which the server reads too.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

AWAITERS = 100
IO_S = 0.005
HOLD_S = 3600.0


@dataclass
class Setup:
    """One contender's settings for one measurement."""

    url: str
    loop: str = "plain"
    concurrency: int = 100
    lease_s: float = 30.0
    name: str = "bench"
    threads: bool = False
    workers: int = 1

    @property
    def host(self) -> str:
        return self.url.split("//")[1].split(":")[0]

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1].split("/")[0])


@dataclass
class When:
    """When a job is due: `after` seconds from its call, or `at` Unix ms; neither: now."""

    after: float | None = None
    at: int | None = None


class Record:
    """What the handlers of this process saw."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self.ends = 0
        self.first_start = 0.0
        self.last_end = 0.0
        self.starts: list[tuple[int, float]] = []


RECORD = Record()


async def noop(value: int) -> None:
    if not RECORD.ends:
        RECORD.first_start = time.time()
    RECORD.ends += 1
    RECORD.last_end = time.time()


async def io(value: int) -> None:
    """Five milliseconds of waiting, as for a database or another service."""
    if not RECORD.ends:
        RECORD.first_start = RECORD.first_start or time.time()
    await asyncio.sleep(IO_S)
    RECORD.ends += 1
    RECORD.last_end = time.time()


async def mark(value: int) -> None:
    """Notes when it started; its value is its due time."""
    RECORD.starts.append((value, time.time()))
    RECORD.ends += 1


async def hold(value: int) -> None:
    """Starts, and goes on until its worker dies."""
    RECORD.starts.append((value, time.time()))
    await asyncio.sleep(HOLD_S)


async def pad(value: str) -> None:
    RECORD.ends += 1


TASKS: dict[str, Callable[[Any], Coroutine[Any, Any, None]]] = {
    "noop": noop,
    "io": io,
    "mark": mark,
    "hold": hold,
    "pad": pad,
}


class Contender(ABC):
    """One queue library at work. Methods that it does not offer raise `NotImplementedError`."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    async def open(self) -> None:  # noqa: B027  # not all have something to do here
        """Connects; before the first enqueue."""

    @abstractmethod
    async def enqueue(self, task: str, value: object, when: When) -> None:
        """One job, by the library's ordinary call; returns when the server has it."""

    async def bulk(self, task: str, jobs: list[tuple[object, When]]) -> None:
        """Many jobs in the way that the library documents for many."""
        raise NotImplementedError("no call for many jobs")

    @abstractmethod
    async def work(self) -> None:
        """Starts a worker in this process; returns when it consumes, as far as the library tells."""

    async def pause(self) -> None:
        """Lets no worker take a job from now on."""
        raise NotImplementedError("no pause")

    async def close(self) -> None:  # noqa: B027
        """Stops what runs."""


def used_cpu_s() -> float:
    """CPU seconds of this process and of the children it has waited for."""
    mine, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return mine.ru_utime + mine.ru_stime + children.ru_utime + children.ru_stime


def rss_kb() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() // 1024


def jobs_of(request: dict[str, Any]) -> list[tuple[object, When]]:
    """The values and due times of an enqueue request."""
    task, count, when = request["task"], request["count"], request.get("when", {})
    text = "x" * request.get("bytes", 100)
    jobs: list[tuple[object, When]] = []
    for n in range(count):
        at = None if "at" not in when else when["at"] + int(n * when.get("every", 0))
        value: object = at if task == "mark" and at is not None else n
        jobs.append((text if task == "pad" else value, When(when.get("after"), at)))
    return jobs


async def _enqueue(contender: Contender, request: dict[str, Any]) -> dict[str, Any]:
    jobs, task = jobs_of(request), request["task"]
    how, due_now = request["how"], task == "mark" and not request.get("when")
    cpu, begun = used_cpu_s(), time.perf_counter()
    if how == "bulk":
        await contender.bulk(task, jobs)
    elif how == "awaiters":
        rest = iter(jobs)

        async def some() -> None:
            for value, when in rest:
                await contender.enqueue(task, value, when)

        await asyncio.gather(*(some() for _ in range(AWAITERS)))
    else:
        for value, when in jobs:
            if due_now:  # its value is the moment of its call, in µs
                value = int(time.time() * 1_000_000)
            await contender.enqueue(task, value, when)
            if "pause" in request:
                await asyncio.sleep(request["pause"])
    return {"seconds": time.perf_counter() - begun, "cpu_s": used_cpu_s() - cpu}


async def _answer(contender: Contender, request: dict[str, Any]) -> dict[str, Any]:
    match request["do"]:
        case "enqueue":
            return await _enqueue(contender, request)
        case "work":
            await contender.work()
            return {}
        case "pause":
            await contender.pause()
            return {}
        case "report":
            r = RECORD
            return {
                "ends": r.ends,
                "first_start": r.first_start,
                "last_end": r.last_end,
                "cpu_s": used_cpu_s(),
                "rss_kb": rss_kb(),
            }
        case "starts":
            starts, RECORD.starts = RECORD.starts, []
            return {"starts": starts}
        case "forget":
            RECORD.forget()
            return {}
        case _:
            raise ValueError(f"unknown request {request!r}")


async def _serve(contender: Contender) -> None:
    loop, requests = asyncio.get_running_loop(), asyncio.Queue[str]()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(requests.put_nowait, line)
        loop.call_soon_threadsafe(requests.put_nowait, "")

    out, sys.stdout = sys.stdout, sys.stderr  # what libraries print must not mix with answers
    threading.Thread(target=read, daemon=True).start()
    await contender.open()
    while True:
        line = await requests.get()
        request = json.loads(line) if line else {"do": "stop"}
        if request["do"] == "stop":
            break
        try:
            answer = await _answer(contender, request)
        except NotImplementedError as error:
            answer = {"lacks": str(error)}
        except Exception as error:  # noqa: BLE001  # it is told to who asked
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=out, flush=True)
    try:
        await asyncio.wait_for(contender.close(), 10)
    finally:
        print("{}", file=out, flush=True)


def serve(make: Callable[[Setup], Contender]) -> None:
    """Runs a contender until it is told to stop, or its input ends."""
    setup = Setup(**json.loads(sys.argv[1]))
    if setup.loop == "uvloop":
        import uvloop  # type: ignore[import-not-found,unused-ignore]  # noqa: PLC0415

        new_loop = uvloop.new_event_loop
    else:
        new_loop = asyncio.new_event_loop
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_serve(make(setup)))
