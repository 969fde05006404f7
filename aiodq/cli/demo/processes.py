"""The demo's worker processes: started, watched through their logs, killed, stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

import anyio
from anyio.to_thread import run_sync

from aiodq.cli.demo.log import Ended, Killed, Log, Reader, Ready, Started, now_ms
from aiodq.cli.demo.post import Post
from aiodq.cli.demo.shop import Settings

_STOP_TIMEOUT_S = 15.0


class WorkerFailed(Exception):
    """A worker process did not start, or ended when it should not have. The message holds what it said."""


class WorkerProcess:
    """One worker process. Its log is `NAME.jsonl`, what it says on stderr `NAME.err`, both in `directory`."""

    def __init__(self, name: str, directory: Path, settings: Settings, lease_s: float) -> None:
        self.name = name
        self.reader: Reader = Reader(directory / f"{name}.jsonl")
        self.state: Literal["works", "killed", "stopped"] = "works"
        self._errors = directory / f"{name}.err"
        post = Post(name, str(directory / f"{name}.jsonl"), lease_s, settings)
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "aiodq",
                    "worker",
                    "aiodq.cli.demo.worker:worker",
                    "--log-level",
                    "warning",
                ],
                env=post.environment(),
                stdin=subprocess.PIPE,  # closes with the demo, which ends the worker
                stdout=errors,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is for the demo, which then stops its workers in order
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def in_hand(self) -> list[Started]:
        """The jobs that it has begun and not ended, as far as its log was read."""
        begun: dict[str, Started] = {}
        for record in self.reader.records:
            match record:
                case Started():
                    begun[record.job_id] = record
                case Ended():
                    begun.pop(record.job_id, None)
                case _:
                    pass
        return list(begun.values())

    @property
    def runs(self) -> int:
        """How many runs it has ended."""
        return sum(isinstance(record, Ended) for record in self.reader.records)

    async def until_ready(self, timeout_s: float = 30) -> None:
        """Return when it is up. Raises: `WorkerFailed`."""
        deadline = time.monotonic() + timeout_s
        while not any(isinstance(record, Ready) for record in self.reader.records):
            self.check()
            if time.monotonic() > deadline:
                raise WorkerFailed(f"{self.name} was not up within {timeout_s:.0f} s. {self._said()}")
            await anyio.sleep(0.02)
            self.reader.read()

    def check(self) -> None:
        """Raises: `WorkerFailed` if it has ended by itself."""
        code = self._process.poll()
        if code is not None and self.state == "works":
            raise WorkerFailed(f"{self.name} ended with code {code}. {self._said()}")

    def kill(self, log: Log) -> None:
        """SIGKILL: it can do nothing any more, not even say goodbye to the server."""
        self.state = "killed"
        self._process.kill()
        log.write(Killed(self.name, now_ms()))
        self._process.wait()
        self.reader.read()

    async def stop(self) -> None:
        """Ask it to stop (SIGTERM) and wait. Raises: `WorkerFailed` if it does not end well."""
        if self.state != "works":
            return
        self.check()
        self._process.send_signal(signal.SIGTERM)
        code = await run_sync(self._wait, _STOP_TIMEOUT_S)
        self.state = "stopped"
        self.reader.read()
        if code != 0:
            self.end()
            how = (
                f"ended with code {code}"
                if code is not None
                else f"did not stop within {_STOP_TIMEOUT_S:.0f} s"
            )
            raise WorkerFailed(f"{self.name} {how}. {self._said()}")

    def end(self) -> None:
        """See to it that the process is gone, whatever happened before."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _wait(self, timeout_s: float) -> int | None:
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def _said(self) -> str:
        said = self._errors.read_text(errors="replace").strip()
        return f"It said:\n{said[-2000:]}" if said else "It said nothing."
