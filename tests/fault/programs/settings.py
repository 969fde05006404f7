"""What the laboratory's programs are told, as one JSON argument."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """Times in seconds; `offset_ms`: the server's clock minus this machine's."""

    url: str
    queue: str
    folder: str
    concurrency: int = 20
    lease_s: float = 30.0
    grace_s: float = 5.0
    backoff_s: float = 0.05
    presence: bool = True
    scripting: Literal["eval", "functions"] = "eval"
    offset_ms: float = 0.0


class ProducerSettings(Struct, frozen=True, kw_only=True):
    """Writes `jobs` jobs at `per_s` a second, each of `run_s` seconds, due up to `delay_s` later.

    Attributes:
        cancels: that share of the jobs is cancelled again.  flaky: that share fails once or twice first.
    """

    url: str
    queue: str
    folder: str
    seed: int
    jobs: int
    per_s: float = 200.0
    run_s: float = 0.01
    delay_s: float = 1.0
    cancels: float = 0.05
    flaky: float = 0.1
    offset_ms: float = 0.0
