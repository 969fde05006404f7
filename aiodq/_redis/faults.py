"""Foreign errors, translated once at the border.

Three kinds: the connection broke (`Lost`: what was sent may or may not have been carried out), the server
refused and did nothing (`Refused`: the same call may be sent again later), and refusals that no repeat mends
(typed errors).
"""

from __future__ import annotations

import re
from typing import Final, Literal

from redis import exceptions as foreign

from aiodq._core.backlog import BacklogFull
from aiodq._core.errors import (
    AiodqError,
    NewerProtocol,
    QueueFull,
    ScriptError,
    WrongOrder,
    WrongShards,
)


class Lost(Exception):
    """The connection broke, or the reply did not come in time. `sent`: the call may have been carried out."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Refused(Exception):
    """The server is not able to serve now, and did nothing: loading, busy, demoted, a slot on the move.

    `elsewhere`: this connection leads to a node that does not serve writes any more, so look for the right
    one.
    """

    def __init__(self, message: str, *, elsewhere: bool) -> None:
        super().__init__(message)
        self.elsewhere = elsewhere


class UnknownScript(Exception):
    """The server does not know the script (or function): deploy it and send the call again."""


class Unordered(Exception):
    """The queue has no order yet, which this caller wants to keep."""


CONNECTION_ERRORS: Final = (foreign.ConnectionError, foreign.TimeoutError, OSError, EOFError)
"""What redis-py and asyncio raise when a connection fails; `AttributeError` and `RuntimeError` on a transport
that the peer closed are turned into these by `Link`."""

_WAIT: Final = ("BUSY", "LOADING", "TRYAGAIN", "ASK", "NOREPLICAS", "MISCONF")
"""ASK and TRYAGAIN: the slot is on its way to another node. There, too, a script is refused until all of its
keys have arrived, and it names keys that do not exist; so its call waits until the slot has moved."""

_ELSEWHERE: Final = ("READONLY", "MASTERDOWN", "MOVED", "CLUSTERDOWN", "UNBLOCKED")
"""CLUSTERDOWN: the majority may be on the other side of a cut, and have another master."""


def refusal(error: Exception, *, call: str) -> Exception:
    """The exception to raise for an error reply to the call named `call`; its cause is the reply. Ours stay
    what they are."""
    if isinstance(error, AiodqError):
        return error
    text = str(error)
    code = _code(error, text)
    if code == "NOSCRIPT" or "Function not found" in text:
        return _caused(UnknownScript(text), error)
    if code == "NEWER":
        version = re.search(r"NEWER (\d+)", text)
        return _caused(
            NewerProtocol(
                f"the queue has layout version {version[1] if version else '?'}, which this aiodq does not "
                f"speak: {call} changed nothing; upgrade this process"
            ),
            error,
        )
    if code == "UNORDERED":
        return _caused(Unordered(text), error)
    if code == "SHARDED":
        count = int((re.search(r"SHARDED (\d+)", text) or ["", "0"])[1])
        return _caused(
            WrongShards(
                f"the queue is divided into {count} shards, and {call} did nothing: pass shards={count} to "
                "this Queue too",
                count,
            ),
            error,
        )
    if code == "ORDERED":
        return _caused(
            WrongOrder(
                f"the queue is first in, first out, and {call} did nothing: pass fifo=True to this Queue too"
            ),
            error,
        )
    full = re.search(r"FULL (jobs|bytes) (\d+) (\d+)", text)
    if full is not None:
        bound: Literal["jobs", "bytes"] = "jobs" if full[1] == "jobs" else "bytes"
        return _caused(BacklogFull(bound, int(full[2]), int(full[3])), error)
    if code == "OOM":
        return _caused(
            QueueFull(
                f"the server is out of memory, and {call} changed nothing: raise maxmemory, or let workers "
                "drain the queue"
            ),
            error,
        )
    if code in _ELSEWHERE:
        return _caused(Refused(f"{code} {text}", elsewhere=True), error)
    if code in _WAIT:
        return _caused(Refused(f"{code} {text}", elsewhere=False), error)
    return _caused(ScriptError(f"the server refused {call}: {text}"), error)


_KNOWN: Final[dict[type[Exception], str]] = {
    foreign.NoScriptError: "NOSCRIPT",
    foreign.ReadOnlyError: "READONLY",
    foreign.OutOfMemoryError: "OOM",
    foreign.BusyLoadingError: "LOADING",
    foreign.TryAgainError: "TRYAGAIN",
    foreign.MasterDownError: "MASTERDOWN",  # a ClusterDownError too
    foreign.ClusterDownError: "CLUSTERDOWN",
    foreign.MovedError: "MOVED",  # an AskError too
    foreign.AskError: "ASK",
}
_INSIDE_SCRIPT: Final = re.compile(r"user_script:\s?\d+: -?([A-Z]+) ")


def _code(error: Exception, text: str) -> str:
    """The first word of an error reply. redis-py cuts it off the texts that it knows; before Redis 7 it
    stands within the text when a command inside a script was refused."""
    inside = _INSIDE_SCRIPT.search(text)
    if inside:
        return inside[1]
    return next((code for kind, code in _KNOWN.items() if isinstance(error, kind)), text.split(" ", 1)[0])


def _caused(translated: AiodqError | Exception, cause: Exception) -> Exception:
    translated.__cause__ = cause
    return translated
