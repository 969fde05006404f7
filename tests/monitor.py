"""Counts what a server is told to do: commands that clients send, and commands that scripts run inside."""

from __future__ import annotations

import re
import socket
import threading
from collections import Counter
from types import TracebackType
from typing import Final, Self

_LINE: Final = re.compile(rb'^\+[\d.]+ \[\d+ (lua|[^\]]+)\] "([^"]*)"(.*)$')
_ARGUMENT: Final = re.compile(rb' "(?:[^"\\]|\\.)*"')
_END: Final = b"monitor-ends-here"


class Monitor:
    """Everything between entering and leaving, by `MONITOR`. Leaving waits until all of it has arrived.

    Attributes:
        sent: by name, commands that clients sent.
        inside: by name, commands that scripts ran.
        arguments: by name, how many arguments the commands in `inside` had in all.
    """

    def __init__(self, host: str, port: int) -> None:
        self.sent: Counter[str] = Counter()
        self.inside: Counter[str] = Counter()
        self.arguments: Counter[str] = Counter()
        self._address = host, port
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self._socket = socket.create_connection(self._address, timeout=20)
        self._socket.sendall(b"MONITOR\r\n")
        self._socket.settimeout(None)  # idle servers have nothing to say
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
            other.sendall(b"ECHO %b\r\n" % _END)
            other.recv(100)
        self._ended.wait(20)
        self._file.close()
        self._socket.close()
        self._reader.join(20)

    def _read(self) -> None:
        try:
            for line in self._file:
                match = _LINE.match(line)
                if match is None:
                    continue
                name = match[2].decode().upper()
                if name == "ECHO" and _END in match[3]:
                    return
                if match[1] == b"lua":
                    self.inside[name] += 1
                    self.arguments[name] += len(_ARGUMENT.findall(match[3]))
                else:
                    self.sent[name] += 1
        finally:
            self._ended.set()
