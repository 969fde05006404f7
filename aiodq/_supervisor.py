"""The process that owns one bundled server: starts it, keeps it up, stops it when nobody uses it any more.

`aiodq.embedded` runs this file by its path (`python -I -S _supervisor.py SETTINGS`), so it imports nothing
but the standard library, and is small and up in a few hundredths of a second. Nobody else calls it.

How it works: everything is a `flock` on a file in the data directory, because the kernel drops those however
a process ends.

=================  ================================  ===================================================
file               shared / exclusive                means
=================  ================================  ===================================================
aiodq.start.lock   - / a starter, for a moment;      one starter at a time; no stop while somebody starts
                   the supervisor while stopping
aiodq.users.lock   every user, while it uses the     the supervisor can take it exclusively: no user left
                   server / the supervisor's looks
aiodq.super.lock   users' looks / the supervisor,    it can be taken shared: the supervisor is gone
                   all its life
aiodq.valkey.lock  - / the server (inherited file)   it can be taken: the server, its children too, are gone,
                                                     so a second one may touch the data
=================  ================================  ===================================================

A new user takes the start lock first, then its user lock; the supervisor stops only while it holds both. So
a user never gets a server that is about to stop. On Linux the server is sent SIGTERM when the supervisor
dies; elsewhere the next supervisor does that.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

START_LOCK = "aiodq.start.lock"
USERS_LOCK = "aiodq.users.lock"
SUPERVISOR_LOCK = "aiodq.super.lock"
SERVER_LOCK = "aiodq.valkey.lock"
ADDRESS_FILE = "aiodq.address.json"
LOG_FILE = "valkey.log"

# sockaddr_un holds 108 bytes on Linux and 104 on macOS, one of them the closing NUL.
_SOCKET_PATH_BYTES = 100
_LOOK_EVERY_S = 0.25  # at most; a short linger is looked after more often
_STOP_TIMEOUT_S = 60.0
# A server that dies this often within a minute is not helped by one more start.
_RESTARTS_PER_MINUTE = 5


@dataclass(frozen=True)
class Settings:
    """What a starter asks for. Times in seconds."""

    directory: str
    binary: str
    port: int | None
    bind: str
    appendfsync: str
    linger_s: float
    start_timeout_s: float

    def to_json(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True)
class Address:
    """Where the running server is: written by the supervisor each time it has started one."""

    socket: str
    port: int | None
    bind: str
    pid: int
    supervisor_pid: int

    @staticmethod
    def read(directory: Path) -> Address | None:
        """The address last written, or None; only the locks tell whether it still holds."""
        try:
            return Address(**json.loads((directory / ADDRESS_FILE).read_bytes()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def write(self, directory: Path) -> None:
        """Replace the file in one step: readers see the old or the new one."""
        part = directory / (ADDRESS_FILE + ".part")
        part.write_text(json.dumps(asdict(self)))
        part.replace(directory / ADDRESS_FILE)


class FileLock:
    """A `flock` on one file; held until `close()`, or until the last process that inherited it ends."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def take(self, *, shared: bool = False, timeout_s: float | None = 0.0) -> bool:
        """Whether the lock was got within `timeout_s` seconds; None waits as long as it takes."""
        how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        if timeout_s is None:
            fcntl.flock(self.fd, how)
            return True
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(self.fd, how | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(0.01)
            else:
                return True

    def release(self) -> None:
        """Unlock for every process that shares this open file."""
        fcntl.flock(self.fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give up this process's share; a child that inherited the file keeps the lock."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def answers(socket_path: str) -> bool:
    """Whether a server behind this socket has loaded its data and answers."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1.0)
        try:
            client.connect(socket_path)
            client.sendall(b"PING\r\n")
            return client.recv(64).startswith(b"+PONG")
        except OSError:
            return False


class StartError(Exception):
    """The server could not be started; the text is for the user."""


class Supervisor:
    """Owns the server of one directory from its first user to its last."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._directory = Path(settings.directory)
        self._life = FileLock(self._directory / SUPERVISOR_LOCK)
        self._server: subprocess.Popen[bytes] | None = None
        self._socket = ""
        self._restarts: list[float] = []
        self._told_to_stop = False

    def start(self) -> None:
        """Start the server and return when it answers. Raises: `StartError`."""
        if not self._life.take(timeout_s=5.0):
            raise StartError("another supervisor of this directory is still running")
        signal.signal(signal.SIGTERM, self._on_sigterm)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self._end_orphan()
        self._socket = self._socket_path()
        self._start_server()

    def run(self) -> None:
        """Keep the server up until nobody has used it for `linger_s` seconds, or SIGTERM; then stop it."""
        users = FileLock(self._directory / USERS_LOCK)
        start = FileLock(self._directory / START_LOCK)
        unused_since: float | None = None
        while not self._told_to_stop:
            if self._server is None or self._server.poll() is not None:
                self._restart_server()
            if users.take():
                users.release()
                unused_since = unused_since or time.monotonic()
                if time.monotonic() - unused_since >= self._settings.linger_s and start.take():
                    if users.take():
                        break
                    start.release()  # a user came between the two locks
            else:
                unused_since = None
            time.sleep(min(_LOOK_EVERY_S, 0.05 + self._settings.linger_s / 8))
        self._stop()

    def _on_sigterm(self, _number: int, _frame: FrameType | None) -> None:
        self._told_to_stop = True

    def _socket_path(self) -> str:
        path = self._directory / "valkey.sock"
        if len(os.fsencode(path)) <= _SOCKET_PATH_BYTES:
            return str(path)
        # Keep the path of a predecessor that was killed, so that its users find the server again.
        before = Address.read(self._directory)
        if before is not None and _is_private(Path(before.socket).parent):
            return before.socket
        # /tmp by name, since $TMPDIR may be long as well; mkdtemp makes it private.
        return str(Path(tempfile.mkdtemp(prefix="aiodq-", dir="/tmp")) / "valkey.sock")

    def _end_orphan(self) -> None:
        """Stop a server whose supervisor was killed: two on the same data would ruin it."""
        lock = FileLock(self._directory / SERVER_LOCK)
        if not lock.take(timeout_s=1.0):
            before = Address.read(self._directory)
            if before is not None:
                with suppress(ProcessLookupError):
                    os.kill(before.pid, signal.SIGTERM)
            if not lock.take(timeout_s=self._settings.start_timeout_s):
                raise StartError("a server without supervisor still uses the data and does not stop")
        lock.close()

    def _start_server(self) -> None:
        lock = FileLock(self._directory / SERVER_LOCK)
        if not lock.take(timeout_s=self._settings.start_timeout_s):
            raise StartError("a server of this directory is still stopping")
        with suppress(FileNotFoundError):
            os.unlink(self._socket)
        parent = os.getpid()
        # The log offset separates this start's messages from those of earlier ones.
        log = self._directory / LOG_FILE
        logged_before = log.stat().st_size if log.exists() else 0
        self._server = subprocess.Popen(
            self._command(),
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            pass_fds=(lock.fd,),
            start_new_session=True,
            preexec_fn=lambda: _die_with(parent),  # noqa: PLW1509  (this process has one thread)
        )
        lock.close()  # the server holds it now, and nobody else
        deadline = time.monotonic() + self._settings.start_timeout_s
        while not answers(self._socket):
            code = self._server.poll()
            if code is not None or time.monotonic() > deadline:
                self._end_server()
                what = "did not answer in time" if code is None else f"ended at once with exit code {code}"
                raise StartError(f"the bundled server {what}; {log} says:\n{_tail(log, logged_before)}")
            time.sleep(0.01)
        settings = self._settings
        Address(self._socket, settings.port, settings.bind, self._server.pid, parent).write(self._directory)

    def _command(self) -> list[str]:
        settings = self._settings
        options: dict[str, str] = {
            "dir": settings.directory,
            "logfile": LOG_FILE,
            "daemonize": "no",
            "port": str(settings.port or 0),
            "bind": settings.bind,
            "unixsocket": self._socket,
            "unixsocketperm": "700",
            "appendonly": "yes",
            "appendfsync": settings.appendfsync,
            "save": "",  # the append-only file is the data; a second copy would only cost
            "maxmemory-policy": "noeviction",
        }
        return [settings.binary, *(word for key, value in options.items() for word in (f"--{key}", value))]

    def _restart_server(self) -> None:
        """Bring a server back that died under its users: same socket, same data."""
        now = time.monotonic()
        self._restarts = [at for at in self._restarts if now - at < 60] + [now]
        if len(self._restarts) > _RESTARTS_PER_MINUTE:
            raise StartError(f"the bundled server died {len(self._restarts)} times within a minute")
        self._start_server()

    def _stop(self) -> None:
        self._end_server()
        with suppress(FileNotFoundError):
            (self._directory / ADDRESS_FILE).unlink()
        with suppress(FileNotFoundError):
            os.unlink(self._socket)
        if Path(self._socket).parent != self._directory:
            shutil.rmtree(Path(self._socket).parent, ignore_errors=True)

    def _end_server(self) -> None:
        """SIGTERM by process id: the server writes its data to disk and ends; SIGKILL if it does not."""
        if self._server is None or self._server.poll() is not None:
            return
        self._server.terminate()
        try:
            self._server.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()


def _die_with(parent: int) -> None:
    """In the new process: ask the kernel for SIGTERM when the supervisor dies (Linux only)."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, int(signal.SIGTERM))
        if os.getppid() != parent:  # it died before the kernel was asked
            os._exit(1)


def _is_private(directory: Path) -> bool:
    try:
        status = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def _tail(log: Path, start: int) -> str:
    try:
        return log.read_bytes()[start:][-1500:].decode(errors="replace").strip() or "(nothing)"
    except OSError:
        return "(no log)"


def main(settings_json: str) -> int:
    """Start a supervisor that outlives its starter; print nothing when the server answers, else why not.

    The caller waits for this process; the supervisor is its child in a session of its own, so that neither
    the starter's terminal nor its end reaches it.
    """
    settings = Settings(**json.loads(settings_json))
    os.umask(0o077)
    report_read, report_write = os.pipe()
    if os.fork():
        os.close(report_write)
        with os.fdopen(report_read) as report:
            text = report.read()
        print(text.removeprefix("ok"), end="")  # noqa: T201  (the answer to the starter)
        return 0 if text == "ok" else 1
    os.setsid()
    os.chdir(settings.directory)
    os.close(report_read)
    log = os.open(LOG_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    supervisor = Supervisor(settings)
    try:
        supervisor.start()
    except StartError as error:
        os.write(report_write, str(error).encode())
        return 1
    os.write(report_write, b"ok")
    os.close(report_write)
    supervisor.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
