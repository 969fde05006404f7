"""Foreign errors, translated once at the border.

Three kinds: the connection broke (`Lost`: what was sent may or may not have been carried out), the server refused and
did nothing (`Refused`: the same call may be sent again later), and refusals that no repeat mends (typed errors).
"""

from __future__ import annotations

import re
from typing import Final

from redis import exceptions as foreign

from aiodq._core.errors import AiodqError, NewerProtocol, QueueFull, ScriptError


class Lost(Exception):
    """The connection broke, or the reply did not come in time. `sent`: the call may have been carried out."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Refused(Exception):
    """The server is not able to serve now, and did nothing: loading, busy, demoted, a slot on the move.

    `elsewhere`: this connection leads to a node that does not serve writes any more, so look for the right one.
    """

    def __init__(self, message: str, *, elsewhere: bool) -> None:
        super().__init__(message)
        self.elsewhere = elsewhere


class UnknownScript(Exception):
    """The server does not know the script (or function): deploy it and send the call again."""


CONNECTION_ERRORS: Final = (foreign.ConnectionError, foreign.TimeoutError, OSError, EOFError)
"""What redis-py and asyncio raise when a connection fails; `AttributeError` and `RuntimeError` on a transport that the
peer closed are turned into these by `Link`."""

_WAIT: Final = ("BUSY", "LOADING", "TRYAGAIN", "CLUSTERDOWN", "NOREPLICAS", "MISCONF")
_ELSEWHERE: Final = ("READONLY", "MASTERDOWN", "MOVED", "ASK", "UNBLOCKED")


def refusal(error: Exception, *, call: str) -> Exception:
    """Translates an error reply to the call named `call`. Returns the exception to raise; its cause is the reply."""
    text = str(error)
    word = _code(error, text)
    if isinstance(error, foreign.NoScriptError) or word == "NOSCRIPT" or "Function not found" in text:
        return _caused(UnknownScript(text), error)
    if "NEWER" in text.split("script:")[0].split()[:2]:
        return _caused(NewerProtocol(_newer(text)), error)
    if isinstance(error, foreign.OutOfMemoryError) or word == "OOM":
        return _caused(
            QueueFull(
                f"the server is out of memory, {call} changed nothing: raise maxmemory, or let workers drain the queue"
            ),
            error,
        )
    if word in _ELSEWHERE or isinstance(error, foreign.ReadOnlyError):
        return _caused(Refused(f"{word} {text}", elsewhere=True), error)
    if word in _WAIT or isinstance(error, foreign.BusyLoadingError):
        return _caused(Refused(f"{word} {text}", elsewhere=False), error)
    return _caused(ScriptError(f"the server refused {call}: {text}"), error)


def _newer(text: str) -> str:
    found = re.search(r"NEWER (\d+)", text)
    return (
        f"the queue has layout version {found[1] if found else '?'}, newer than this aiodq speaks: nothing was changed. "
        "Upgrade this process."
    )


def _code(error: Exception, text: str) -> str:
    """The first word of an error reply; redis-py cuts it off for the classes that it knows."""
    status = getattr(error, "status_code", None)
    if isinstance(status, str):
        return status
    word = text.split(" ", 1)[0]
    if word == "ERR" or not word.isupper():
        return {
            foreign.ReadOnlyError: "READONLY",
            foreign.OutOfMemoryError: "OOM",
            foreign.NoScriptError: "NOSCRIPT",
            foreign.BusyLoadingError: "LOADING",
        }.get(type(error), word)
    return word


def _caused(translated: AiodqError | Exception, cause: Exception) -> Exception:
    translated.__cause__ = cause
    return translated
