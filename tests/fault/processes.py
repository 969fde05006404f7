"""Real worker processes on one queue, what is done to them, and what they wrote down."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec

from tests.fault.events import Claimed, Event, Fault, Recorder, Settled, read
from tests.fault.programs.settings import ProducerSettings, WorkerSettings
from tests.servers import ScriptProcess

_PROGRAMS = Path(__file__).parent / "programs"


class WorkerProcess:
    """One worker; `name` is how histories call it."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._script = ScriptProcess(_PROGRAMS / "worker.py", msgspec.json.encode(settings).decode())
        self.name = f"worker-{self._script.pid}"

    @property
    def alive(self) -> bool:
        return self._script.returncode is None

    def ready(self) -> Self:
        """Returns when it consumes."""
        self._script.wait_for("ready")
        return self

    def send(self, number: signal.Signals) -> None:
        self._script.send_signal(number)

    def kill(self) -> None:
        self._script.kill()

    def wait(self, timeout_s: float = 20.0) -> int:
        return self._script.wait(timeout_s)

    def close(self) -> None:
        if self.alive:
            self._script.send_signal(signal.SIGCONT)  # a frozen one
        self._script.close()


class ProducerProcess:
    """One process that writes jobs until it is killed."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._script = ScriptProcess(_PROGRAMS / "producer.py", msgspec.json.encode(settings).decode())
        self._script.wait_for("ready")

    def kill(self) -> None:
        self._script.kill()

    def close(self) -> None:
        self._script.close()


class Fleet:
    """Workers with the same settings, and the laboratory's own notes of what it did to them. Use it with
    `with`: leaving it ends all processes."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings = settings
        self.workers: list[WorkerProcess] = []
        self.recorder = Recorder(Path(settings.folder), "laboratory", offset_ms=settings.offset_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self.workers:
            worker.close()
        self.recorder.close()

    def start(self, count: int = 1) -> list[WorkerProcess]:
        """Starts that many at once, and returns when all consume."""
        started = [WorkerProcess(self.settings) for _ in range(count)]
        self.workers += started
        return [worker.ready() for worker in started]

    def note(self, kind: str, worker: str = "", *, since_ms: float | None = None) -> None:
        """Writes down a fault that has just been made, or that lasted since then."""
        now_ms = self.recorder.now_ms()
        self.recorder.write(Fault(now_ms if since_ms is None else since_ms, kind, worker, now_ms))

    def kill(self, worker: WorkerProcess) -> float:
        """SIGKILL. Returns when that was, ms."""
        now_ms = self.recorder.now_ms()
        worker.kill()
        self.recorder.write(Fault(now_ms, "kill", worker.name, now_ms))
        return now_ms

    def stop_all(self) -> None:
        """SIGTERM to those that live; returns when they have ended."""
        living = [worker for worker in self.workers if worker.alive]
        for worker in living:
            worker.send(signal.SIGTERM)
        for worker in living:
            worker.wait()

    def history(self) -> list[Event]:
        return read(Path(self.settings.folder))


def held_by(events: Sequence[Event], worker: str, at_ms: float) -> dict[str, Claimed]:
    """What a worker held at that moment: job id -> its claim."""
    held: dict[str, Claimed] = {}
    for event in events:
        if event.at_ms > at_ms or isinstance(event, Fault):
            continue
        if isinstance(event, Claimed) and event.worker == worker:
            held[event.job_id] = event
        elif isinstance(event, Settled) and event.worker == worker:
            held.pop(event.job_id, None)
    return held


def restarts_ms(events: Sequence[Event], held: dict[str, Claimed], at_ms: float) -> list[float]:
    """How long after that moment each held job was claimed again, sorted; without those that had ended."""
    again: dict[str, float] = {}
    for event in events:
        if isinstance(event, Claimed) and event.job_id in held and event.at_ms > at_ms:
            again.setdefault(event.job_id, event.at_ms - at_ms)
    return sorted(again.values())
