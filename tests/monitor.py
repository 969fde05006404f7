"""Counts what a server is told to do: commands that clients send, and commands that scripts run inside."""

from __future__ import annotations

import re
import socket
import threading
from collections import Counter
from types import TracebackType
from typing import Final, Self

_LINE: Final = re.compile(rb'^\+[\d.]+ \[\d+ (lua|[^\]]+)\] "([^"]*)"(?: "([^"]*)")?')
_END: Final = "monitor-ends-here"


class Monitor:
    """Everything between entering and leaving, by `MONITOR`. Leaving waits until all of it has arrived.

    Attributes:
        sent: by name, commands that clients sent (its own aside).
        inside: by name, commands that scripts ran.
    """

    def __init__(self, host: str, port: int) -> None:
        self.sent: Counter[str] = Counter()
        self.inside: Counter[str] = Counter()
        self._address = host, port
        self._ended = threading.Event()

    @property
    def scripts(self) -> int:
        """Script calls among the commands sent."""
        return self.sent["EVALSHA"] + self.sent["FCALL"] + self.sent["EVAL"]

    def __enter__(self) -> Self:
        self._socket = socket.create_connection(self._address, timeout=20)
        self._socket.sendall(b"MONITOR\r\n")
        self._file = self._socket.makefile("rb")
        if self._file.readline() != b"+OK\r\n":
            raise ConnectionError("the server does not let us monitor it")
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        with socket.create_connection(self._address, timeout=20) as other:
            other.sendall(b"ECHO %b\r\n" % _END.encode())
            other.recv(100)
        self._ended.wait(20)
        self._socket.close()
        self._reader.join(20)

    def _read(self) -> None:
        try:
            for line in self._file:
                match = _LINE.match(line)
                if match is None:
                    continue
                where, name, first = match[1], match[2].decode().upper(), match[3]
                if name == "ECHO" and first == _END.encode():
                    return
                (self.inside if where == b"lua" else self.sent)[name] += 1
        except (OSError, ValueError):
            pass
        finally:
            self._ended.set()
