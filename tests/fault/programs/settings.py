"""What the laboratory's programs are told, as one JSON argument."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """Times in seconds; `offset_ms`: the server's clock minus this machine's; `mutation`: which safeguard the
    worker's scripts lack."""

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
    mutation: str | None = None


class ProducerSettings(Struct, frozen=True, kw_only=True):
    """Writes about `per_s` jobs a second, each of up to `run_s` seconds, due up to `delay_s` later.

    Attributes:
        cancels: about that share of the jobs is cancelled again.
        flaky: that share fails once or twice before it ends well.
    """

    url: str
    queue: str
    folder: str
    seed: int
    per_s: float = 150.0
    batch: int = 15
    run_s: float = 1.0
    delay_s: float = 1.5
    cancels: float = 0.02
    flaky: float = 0.1
    scripting: Literal["eval", "functions"] = "eval"
    offset_ms: float = 0.0
