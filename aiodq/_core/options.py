"""Options of tasks and calls: which there are, what they may be, and which of several goes first.

An option is looked up at the call (`task.options(…)`, `send`), then at the handler, its stub, the queue's
`defaults=` and the library. `headers`, `spread` and `unique` are looked up where the job is made. Of the
others only those of the call travel; what is said at the handler counts where the job runs, so that a
deployment changes it for waiting jobs.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias, TypedDict, cast, get_args

from msgspec import UNSET, Struct, UnsetType

from aiodq._core.backoff import Backoff
from aiodq._core.durations import Duration, length_ms
from aiodq._core.envelope import Carried
from aiodq._core.errors import ConfigError
from aiodq._core.limit import MaxRunning
from aiodq._core.names import check_headers, check_job_id
from aiodq._core.policy import OnError, Policy
from aiodq._core.rate import Rate
from aiodq._core.unique import Unique

OnDuplicate: TypeAlias = Literal["keep", "replace", "raise"]


class JobOptions(TypedDict, total=False):
    """For tasks, queues' `defaults=` and calls.

    `max_attempts`: runs that may fail, the first included (10). `timeout`: the longest run, None: no
    limit (1 h). `expires`: how long after its due time a job may still start, None: for ever. `headers`:
    strings for the handler. `spread`: how much later than its due time a job may be due, drawn evenly by
    its id, so that a burst of jobs does not start at one moment (0). `unique`: of jobs that mean the same,
    one is enough for a while (None).
    """

    max_attempts: int
    timeout: Duration | None
    expires: Duration | None
    headers: Mapping[str, str]
    spread: Duration
    unique: Unique | None


class CallOptions(JobOptions, total=False):
    """For one call. `job_id`: an id of the application's own. `on_duplicate`: what happens to a job that
    has it already: it stays ("keep"), it gets these arguments ("replace"), or it stays and `DuplicateJob`
    is raised. `shard_key`: jobs of one key are in one shard; it stands in braces before the id.
    """

    job_id: str
    shard_key: str
    on_duplicate: OnDuplicate


class TaskOptions(JobOptions, total=False):
    """For a task or a queue's `defaults=`; see `Policy` for what each one means. These never travel with
    a job."""

    backoff: Backoff
    retry_on: tuple[type[Exception], ...]
    bury_on: tuple[type[Exception], ...]
    on_error: OnError | None
    on_expired: Literal["drop", "bury"]
    max_crashes: int
    rate: Rate | None
    max_running: MaxRunning | None


class CallSpec(Struct, frozen=True):
    """The checked options of one call; None where nothing was said."""

    job_id: str | None = None
    on_duplicate: OnDuplicate = "keep"
    headers: dict[str, str] | None = None
    carried: Carried | None = None
    shard_key: str = ""
    spread_ms: int | None = None
    unique: Unique | UnsetType | None = UNSET


NO_OPTIONS: Final = CallSpec()

LATER: Final = frozenset({
    "concurrency_key", "durability", "durability_timeout", "then",
    "keep_result", "dedupe", "middlewares", "codec", "large",
})  # fmt: skip
"""Options that are agreed but not built yet, so that a call with one says so instead of doing something
else."""


ELSEWHERE: Final = {
    "max_retries": "max_attempts",
    "max_tries": "max_attempts",
    "retries": "max_attempts",
    "time_limit": "timeout",
    "job_timeout": "timeout",
    "task_id": "job_id",
    "id": "job_id",
    "retry_backoff": "backoff",
}
"""What other libraries call these options. Their nearest name by letters may be a wrong one."""


_MOST_KEY_BYTES: Final = 202
"""Of an id's 256 bytes, with the braces: a made id goes behind it."""


def read_call_options(options: Mapping[str, object]) -> CallSpec:
    """Checks the options of a call.

    Raises:
        TypeError: an unknown option, or a value of a wrong type.
        ValueError: a value outside its range.
    """
    check_known("call option", options, CallOptions.__optional_keys__)
    given = cast("CallOptions", options)
    duplicate = given.get("on_duplicate", "keep")
    if duplicate not in get_args(OnDuplicate):
        raise ValueError(f'on_duplicate={duplicate!r}: expected "keep", "replace" or "raise"')
    job_id = check_job_id(given["job_id"]) if "job_id" in given else None
    return CallSpec(
        job_id,
        duplicate,
        check_headers(given["headers"]) if "headers" in given else None,
        _carried(given),
        _check_shard_key(given["shard_key"], job_id) if "shard_key" in given else "",
        spread_ms_of(given),
        unique_of(given),
    )


def _check_shard_key(key: str, job_id: str | None) -> str:
    """The key in braces, as ids begin with it."""
    if not isinstance(cast("object", key), str):
        raise TypeError(f"shard_key={key!r}: expected a string, got {type(key).__name__}")
    start = f"{{{key}}}"
    try:
        check_job_id(start + "x")
    except ValueError as error:
        raise ValueError(
            f"shard_key={key!r}: expected 1 to 200 characters without braces: {error}"
        ) from error
    if job_id is not None and not job_id.startswith(start):
        raise ValueError(f"job_id={job_id!r} with shard_key={key!r}: expected an id that begins with {start}")
    if len(start.encode()) > _MOST_KEY_BYTES:
        raise ValueError(f"shard_key={key!r}: expected at most {_MOST_KEY_BYTES - 2} bytes")
    return start


def read_task_options(what: str, options: Mapping[str, object]) -> TaskOptions:
    """Checks the options of a task, or the defaults of a queue; `what` names it.

    Raises:
        TypeError: an unknown option.
        ConfigError: a value that it cannot have.
    """
    check_known("task option", options, TaskOptions.__optional_keys__)
    given = cast("TaskOptions", dict(options))
    try:
        if "headers" in given:
            given["headers"] = check_headers(given["headers"])
        spread_ms_of(given)
        unique_of(given)
        make_policy(given)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{what}: {error}") from error
    return given


def spread_ms_of(options: JobOptions) -> int | None:
    """The spread among these options, ms; None where nothing was said. Raises TypeError, ValueError."""
    return length_ms(options["spread"], "spread", zero=True) if "spread" in options else None


def unique_of(options: JobOptions) -> Unique | UnsetType | None:
    """The `unique` among these options; UNSET where nothing was said. Raises TypeError."""
    return _unique_or_none(options["unique"]) if "unique" in options else UNSET


def _unique_or_none(value: object) -> Unique | None:
    if value is None or isinstance(value, Unique):
        return value
    raise TypeError(f"unique={value!r}: expected a Unique or None, got {type(value).__name__}")


def make_policy(*options: TaskOptions) -> Policy:
    """The rules of a task from options that were given in several places, the first place going first."""
    merged = cast("TaskOptions", {name: value for some in reversed(options) for name, value in some.items()})
    fields: dict[str, object] = {name: value for name, value in merged.items() if name in _AS_THEY_ARE}
    fields |= _lengths(merged)
    return Policy(**fields)  # type: ignore[arg-type]  # checked by itself


def check_known(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raises TypeError for a name that is not known, with the nearest one that is."""
    known = list(known)
    for name in given:
        if name not in known:
            if name in LATER:
                raise TypeError(f"{what} {name!r} is not in this version of aiodq")
            usual = ELSEWHERE.get(name)
            near = [usual] if usual in known else difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(sorted(known))}"
            raise TypeError(f"unknown {what} {name!r}: {hint}")


_AS_THEY_ARE: Final = frozenset(Policy.__struct_fields__) & frozenset(TaskOptions.__optional_keys__)


def _lengths(options: JobOptions) -> dict[str, int | None]:
    """The times among the options in ms, under the names of `Policy` and `Carried`."""
    lengths: dict[str, int | None] = {}
    if "timeout" in options:
        lengths["timeout_ms"] = _length(options["timeout"], "timeout")
    if "expires" in options:
        lengths["expires_ms"] = _length(options["expires"], "expires")
    return lengths


def _length(value: Duration | None, what: str) -> int | None:
    return None if value is None else length_ms(value, what)


def _carried(options: CallOptions) -> Carried | None:
    """What travels with the job; None when there is nothing."""
    lengths = _lengths(options)
    attempts = options.get("max_attempts", UNSET)
    given = "job_id" in options
    if attempts is UNSET and not lengths and not given:
        return None
    if attempts is not UNSET:
        _check_attempts(attempts)
    return Carried(
        max_attempts=attempts,
        timeout_ms=lengths.get("timeout_ms", UNSET),
        expires_ms=lengths.get("expires_ms", UNSET),
        given=given,
    )


def _check_attempts(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"max_attempts={value!r}: expected a whole number, got {type(value).__name__}")
    if not 1 <= value < 1 << 31:
        raise ValueError(f"max_attempts={value!r}: expected at least 1 (it counts the first run)")
