"""Exit codes of every command: the one table that `--help`, docs/cli.md and the tests share."""

from __future__ import annotations

from typing import Final

from aiodq import AiodqError, ConfigError, StoreUnavailable

OK: Final = 0
"""Done. A worker or server that was asked to stop, and stopped cleanly, also ends with this."""

FAILED: Final = 1
"""The command did its work and the answer is bad: a check found a fault and left it, a worker
broke down."""

USAGE: Final = 2
"""The command cannot be carried out as written: a wrong option, module or queue name, or a missing extra."""

UNREACHABLE: Final = 3
"""The server could not be reached, or did not answer in time. The same command may work later."""

STUCK: Final = 70
"""A worker's handlers did not stop within its grace, so the process ended at once (the worker's own code)."""

INTERRUPTED: Final = 130
"""Ended by Ctrl-C before it was done (128 + SIGINT, as shells report it)."""

TABLE: Final = (
    (OK, "done; a worker or server was asked to stop and did"),
    (FAILED, "a check failed or left faults, or a worker broke down"),
    (USAGE, "wrong option, module, queue or setting; missing extra"),
    (UNREACHABLE, "the server cannot be reached"),
    (STUCK, "a worker's handlers did not stop within its grace"),
    (INTERRUPTED, "ended by Ctrl-C before it was done"),
)
"""Each code and what it tells, for help texts."""


def exit_code(error: AiodqError) -> int:
    """The code that tells a script which kind of error ended the command."""
    if isinstance(error, StoreUnavailable):
        return UNREACHABLE
    return USAGE if isinstance(error, ConfigError) else FAILED
