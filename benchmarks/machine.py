"""What the machine did meanwhile: CPU time of processes and of the whole machine, and what it is."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def busy_s() -> float:
    """CPU seconds that the machine has worked, over all cores, since it started."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, _stat_line().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS


def _stat_line() -> str:
    with open("/proc/stat") as stat:
        return stat.readline()


def cpu_s_of(pid: int) -> float:
    """CPU seconds of a process and of its children, ended or not; 0 if it is gone."""
    total = 0.0
    for one in (pid, *_children(pid)):
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(map(int, fields[11:15])) / _TICKS
    return total


def _children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        found = [int(c) for task in tasks for c in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return found + [grandchild for child in found for grandchild in _children(child)]


@dataclass(frozen=True)
class Moment:
    """CPU times at one moment."""

    clock: float
    busy: float
    own: float

    @classmethod
    def now(cls, pids: Iterable[int]) -> Moment:
        own = sum(cpu_s_of(pid) for pid in pids) + time.process_time()
        return cls(time.monotonic(), busy_s(), own)

    def foreign_share(self, later: Moment) -> float:
        """Part of all cores that others used between the two moments, 0 to 1."""
        foreign = (later.busy - self.busy) - (later.own - self.own)
        return max(0.0, foreign / max(1e-9, (later.clock - self.clock) * (os.cpu_count() or 1)))


def describe() -> dict[str, object]:
    """The conditions of a run."""
    model = next(
        (line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith("model name")),
        platform.processor() or "unknown",
    )
    return {
        "cores": os.cpu_count(),
        "processor": model,
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def _cpuinfo() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except FileNotFoundError:
        return []
