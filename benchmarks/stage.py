"""Where one contender is measured once: a running server, its processes, what is read before and after."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from benchmarks.contenders.protocol import Setup
from benchmarks.environments import ROOT, Entry, command_for
from benchmarks.machine import Moment
from tests.monitor import Monitor
from tests.servers import ServerProcess

ANSWER_S = 120.0


class Lacks(Exception):
    """The contender does not offer what the question asks for."""


class Failed(Exception):
    """The contender failed to do it; the message is its own."""


class Participant:
    """One process of a contender. Dies with this process, and ends at `close`."""

    def __init__(self, entry: Entry, home: Path, setup: Setup, log: Path) -> None:
        command, variables = command_for(entry, home)
        self.name = entry.name
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            [*command, json.dumps(asdict(setup))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **variables},
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, do: str, timeout_s: float = ANSWER_S, **more: Any) -> dict[str, Any]:
        self.tell(do, **more)
        return self.hear(timeout_s)

    def tell(self, do: str, **more: Any) -> None:
        """Asks without waiting; `hear` gives the answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **more}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise Failed(f"{self.name} has ended") from error

    def hear(self, timeout_s: float = ANSWER_S) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise Failed(f"no answer within {timeout_s:g} s") from None
        if not line:
            raise Failed(f"{self.name} ended with code {self._process.wait()}")
        answer = cast("dict[str, Any]", json.loads(line))
        if "lacks" in answer:
            raise Lacks(answer["lacks"])
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def kill(self) -> None:
        """As a crash does."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        if self._process.poll() is None:
            try:
                self.tell("stop")
                self._process.wait(12)
            except (Failed, subprocess.TimeoutExpired):
                self.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")


@dataclass
class Window:
    """What was used between two moments."""

    seconds: float = 0.0
    server_cpu_s: float = 0.0
    foreign: float = 0.0
    calls: dict[str, tuple[int, float]] = field(default_factory=dict)
    """By command, scripts' own calls included: how many, and µs."""


class Stage:
    """For one measurement of one contender."""

    def __init__(self, entry: Entry, server: ServerProcess, home: Path, log: Path, *, quick: bool) -> None:
        self.entry = entry
        self.server = server
        self.quick = quick
        self.client = server.client()
        self.foreign = 0.0
        self._home = home
        self._log = log
        self._participants: list[Participant] = []

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def start(self, **settings: Any) -> Participant:
        """A process of this contender, which answers: what it does next takes no time to start up."""
        participant = self._begin(**settings)
        participant.ask("report")
        return participant

    def _begin(self, **settings: Any) -> Participant:
        fitting: dict[str, Any] = {**self.entry.settings, **settings}
        setup = Setup(url=self.server.url, loop=self.entry.loop, **fitting)
        participant = Participant(self.entry, self._home, setup, self._log)
        self._participants.append(participant)
        return participant

    def workers(self, count: int, settle_s: float = 1.0, **settings: Any) -> list[Participant]:
        """So many processes with a worker each, that has had time to settle down."""
        started = [self._begin(**settings) for _ in range(count)]
        for worker in started:
            worker.tell("work")
        for worker in started:
            worker.hear()
        time.sleep(settle_s)
        return started

    @contextmanager
    def window(self) -> Generator[Window]:
        """Measures CPU and commands of what happens inside."""
        window = Window()
        self.client.config_resetstat()
        pids = [self.server.pid, *(p.pid for p in self._participants)]
        before, cpu = Moment.now(pids), self.server_cpu_s()
        yield window
        after = Moment.now(pids)
        window.seconds = after.clock - before.clock
        window.server_cpu_s = self.server_cpu_s() - cpu
        window.foreign = before.foreign_share(after)
        window.calls = self.command_stats()
        self.foreign = max(self.foreign, window.foreign)

    @contextmanager
    def monitor(self) -> Generator[Monitor]:
        """Counts commands sent, and inside scripts, exactly; slows the server down."""
        with Monitor("127.0.0.1", self.server.port) as monitor:
            yield monitor

    def server_cpu_s(self) -> float:
        info = cast("dict[str, float]", self.client.info("cpu"))
        return info["used_cpu_user"] + info["used_cpu_sys"]

    def command_stats(self) -> dict[str, tuple[int, float]]:
        stats = cast("dict[str, dict[str, float]]", self.client.info("commandstats"))
        return {name[8:]: (int(one["calls"]), float(one["usec"])) for name, one in stats.items()}

    def memory(self) -> int:
        """Bytes that the server uses for its data and buffers."""
        return int(cast("dict[str, int]", self.client.info("memory"))["used_memory"])

    def close(self) -> None:
        for participant in self._participants:
            participant.close()
        self._participants.clear()
        self.client.close()


def reports(workers: list[Participant]) -> list[dict[str, Any]]:
    for worker in workers:
        worker.tell("report")
    return [worker.hear() for worker in workers]


def until(
    workers: list[Participant], ends: int, timeout_s: float, every_s: float = 0.1
) -> list[dict[str, Any]]:
    """Waits until so many jobs have ended in all; gives the last reports.

    Raises: Failed when it takes longer.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        found = reports(workers)
        done = sum(one["ends"] for one in found)
        if done >= ends:
            return found
        if time.monotonic() > deadline:
            raise Failed(f"{done} of {ends} jobs had ended after {timeout_s:g} s")
        time.sleep(every_s)


def quantiles(values: list[float]) -> dict[str, float]:
    """p50, p90, p99, the greatest, and how many."""
    ordered = sorted(values)
    if not ordered:
        raise Failed("no job was run")

    def at(part: float) -> float:
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))]

    return {"p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": ordered[-1], "n": len(ordered)}


def now_ms() -> int:
    return int(time.time() * 1000)


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
