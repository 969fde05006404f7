"""What the end of a run means: pure functions from what happened to the one settlement that says so.

========================================  ==============================================================
what happened                             how the job ends
========================================  ==============================================================
returned                                  ack
raised Retry                              retry, a failure; buried after the last attempt
raised Snooze                             snooze, no failure
raised Bury                               bury
raised any other Exception                `on_error`, then `bury_on`, then `retry_on`, then attempts left
an exception group                        as its one directive if it holds nothing else; otherwise by its
                                          leaves: one in `bury_on` buries, all must be in `retry_on`
raised what is no Exception               a failure (SystemExit, KeyboardInterrupt, GeneratorExit, and a
                                          CancelledError that nobody sent)
stopped at its time limit                 a failure with TimeoutError; ack if it returned nevertheless
stopped by a shutdown                     release, uncounted; ack if it returned nevertheless
its task's rate allows no start now       release until the moment reserved for it
as many of its task run as may            release until a permit is free
asked `current_job` for a wrong state     release after a delay: the deployment is at fault
on_error or backoff raised                noted in the history; the other rules go on
task or payload version not known here    release after 1 s, doubling up to 60 s
payload or arguments cannot be read       bury
not started within `expires`              dropped (expire) or buried, by `on_expired`
its workers died too often                bury
========================================  ==============================================================
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from aiodq._core.backoff import Exponential, Failure, backoff_ms
from aiodq._core.directives import Bury, Directive, Retry, Snooze, leaves_of, sole_directive
from aiodq._core.due import Due
from aiodq._core.errors import ConfigError
from aiodq._core.policy import Policy
from aiodq._core.settlement import Acked, Buried, Deferred, Released, Settlement
from aiodq._core.tally import (
    ErrorRecord,
    Reservation,
    describe,
    encode_tally,
    read_tally,
    record_error,
)

StopReason: TypeAlias = Literal["timeout", "lost", "shutdown"]
"""Why a worker cancelled a handler."""

HANDBACK_FIRST_MS: Final = 1000
HANDBACK_LONGEST_MS: Final = 60_000

_DEFAULT_BACKOFF: Final = Exponential()


class WrongState(ConfigError):
    """`current_job(State)` was asked for another type than the worker's lifespan made."""


class Facts(Struct, frozen=True, kw_only=True):
    """What is known of a job when its run has ended or cannot begin.

    Attributes:
        policy: the rules, the job's own options included.
        tally: counters and history as claimed.
        now_ms: the server's time, for the history.
        random: from [0, 1), for jitter.
        remember: its end leaves a done mark.
    """

    job_id: str
    token: str
    task: str
    policy: Policy
    tally: bytes | None
    now_ms: int
    random: float = 1.0
    remember: bool = False


class Verdict(Struct, frozen=True):
    """How a job ends, and the error that led there, as one line."""

    settlement: Settlement
    error: str | None = None


def after_run(facts: Facts, error: BaseException | None, stopped: StopReason | None) -> Verdict:
    """The end of a run that returned (`error` None) or raised; `stopped`: the worker had cancelled it for
    that.

    What a handler makes of its cancellation counts: one that still returns, or raises a directive, is taken
    at its word. For a lost lease any answer will do, since the store refuses it.
    """
    if error is None:
        return Verdict(Acked(facts.job_id, facts.token, facts.remember))
    directive = sole_directive(error)
    if directive is not None:
        return _directed(facts, directive)
    if stopped == "timeout":
        return _failed(facts, _timeout(facts.policy, error))
    if stopped is not None:
        return _released(facts, describe(error))
    if any(isinstance(leaf, WrongState) for leaf in leaves_of(error)):
        blob = encode_tally(read_tally(facts.tally).spent(facts.now_ms))
        return handed_back(msgspec.structs.replace(facts, tally=blob), describe(error))
    return _failed(facts, error)


def handed_back(facts: Facts, error: str) -> Verdict:
    """Not for this worker: given back uncounted, with a delay that grows each time."""
    tally = read_tally(facts.tally).handed_back()
    doublings = min(tally.handbacks - 1, 16)
    wait_ms = min(HANDBACK_LONGEST_MS, HANDBACK_FIRST_MS << doublings)
    return Verdict(
        Deferred(facts.job_id, facts.token, Due(wait_ms), encode_tally(tally), outcome="release"), error
    )


def put_off(facts: Facts, wait_ms: int, error: str) -> Verdict:
    """Given back uncounted, for a while: this worker cannot run it now."""
    blob = encode_tally(read_tally(facts.tally))
    return Verdict(Deferred(facts.job_id, facts.token, Due(wait_ms), blob, outcome="release"), error)


def deferred(facts: Facts, reservation: Reservation, why: str = "put off by its task's rate") -> Verdict:
    """Given back uncounted, until the moment that was reserved for it: its task's rate is used up for now, or
    there is no permit for it."""
    blob = encode_tally(read_tally(facts.tally).put_off(reservation))
    due = Due(reservation.at_ms, relative=False)
    return Verdict(Deferred(facts.job_id, facts.token, due, blob, outcome="release"), why)


def unreadable(facts: Facts, error: BaseException) -> Verdict:
    """Its payload or arguments will never be readable: buried at once."""
    return _bury(facts, describe(error), record_error(error, facts.now_ms))


def expired(facts: Facts, due_ms: int) -> Verdict | None:
    """The end of a job that was not started in time; None when it still may start."""
    expires_ms = facts.policy.expires_ms
    if expires_ms is None or facts.now_ms <= due_ms + expires_ms:
        return None
    reason = f"expired: {facts.now_ms - due_ms} ms after its due time, {expires_ms} ms were allowed"
    if facts.policy.on_expired == "bury":
        return _bury(facts, reason)
    return Verdict(Acked(facts.job_id, facts.token, facts.remember, outcome="expire"), reason)


def crashed_out(facts: Facts, crashes: int) -> Verdict | None:
    """The end of a job with which workers died too often; None when it may be run once more."""
    if crashes < facts.policy.max_crashes:
        return None
    return _bury(
        facts, f"its worker died {crashes} times while running it (max_crashes={facts.policy.max_crashes})"
    )


def _released(facts: Facts, error: str) -> Verdict:
    """Stopped in the middle of a run: at its own due time again. If it had waited for its rate, that start is
    used up, which must be noted; then it is due now."""
    tally = read_tally(facts.tally)
    if tally.reservation is None:
        return Verdict(Released(facts.job_id, facts.token), error)
    blob, due = encode_tally(tally.spent(facts.now_ms)), Due(facts.now_ms, relative=False)
    return Verdict(Deferred(facts.job_id, facts.token, due, blob, outcome="release"), error)


def _timeout(policy: Policy, error: BaseException) -> TimeoutError:
    limit = f"{policy.timeout_ms / 1000:g} s" if policy.timeout_ms is not None else "its limit"
    timeout = TimeoutError(f"stopped at its timeout of {limit}")
    timeout.__cause__ = error  # shows where the handler was, and what it made of its cancellation
    return timeout


def _directed(facts: Facts, directive: Directive) -> Verdict:
    if isinstance(directive, Snooze):
        blob = encode_tally(read_tally(facts.tally).snoozed())
        return Verdict(Deferred(facts.job_id, facts.token, directive.due, blob, outcome="snooze"))
    if isinstance(directive, Retry):
        return _failed(facts, directive)
    reason = directive.reason if isinstance(directive, Bury) else f"unknown directive {describe(directive)}"
    return _bury(facts, reason or "asked for by its handler", record_error(directive, facts.now_ms))


def _failed(facts: Facts, error: BaseException) -> Verdict:
    """A failure: the rules decide between another run and the dead letters."""
    policy, before = facts.policy, read_tally(facts.tally)
    failures = before.failures + 1
    shown = describe(error)
    failure = Failure(error=_as_exception(error), failures=failures, task=facts.task, job_id=facts.job_id)
    notes = [record_error(error, facts.now_ms)]

    directive = error if isinstance(error, Directive) else _asked(policy, failure, facts.now_ms, notes)
    if isinstance(directive, Snooze):
        blob = encode_tally(before.with_errors(*notes).snoozed())
        return Verdict(Deferred(facts.job_id, facts.token, directive.due, blob, outcome="snooze"), shown)

    due = directive.due if isinstance(directive, Retry) else None
    reason = _reason_to_bury(policy, error, directive, failures)
    if reason is None and due is None:
        due = Due(_wait_ms(facts, failure, notes))

    tally = before.failed(*notes)
    if reason is not None or due is None:
        blob = encode_tally(tally.buried(reason or shown))
        return Verdict(Buried(facts.job_id, facts.token, blob), shown)
    return Verdict(Deferred(facts.job_id, facts.token, due, encode_tally(tally)), shown)


def _reason_to_bury(
    policy: Policy, error: BaseException, directive: Directive | None, failures: int
) -> str | None:
    shown = describe(error)
    if directive is not None and not isinstance(directive, Retry):
        return directive.reason or shown
    if directive is None:
        leaves = leaves_of(error)
        if isinstance(error, policy.bury_on) or any(isinstance(leaf, policy.bury_on) for leaf in leaves):
            return f"in bury_on: {shown}"
        # What is no Exception cannot be named in retry_on, so it does not count against it.
        if not isinstance(error, policy.retry_on) and not all(
            isinstance(leaf, policy.retry_on) or not isinstance(leaf, Exception) for leaf in leaves
        ):
            return f"not in retry_on: {shown}"
    if failures >= policy.max_attempts:
        return f"failed {failures} of {policy.max_attempts} attempts: {shown}"
    return None


def _asked(policy: Policy, failure: Failure, now_ms: int, notes: list[ErrorRecord]) -> Directive | None:
    """What the task's own `on_error` says. Whatever goes wrong in it is noted, and the other rules go on."""
    if policy.on_error is None:
        return None
    try:
        answer = _directive_or_none(policy.on_error(failure))
    except Directive as directive:  # raised instead of returned: meant the same
        return directive
    except BaseException as error:  # noqa: BLE001  # a hook may raise anything; the job must still end
        notes.append(record_error(error, now_ms, note="raised by on_error"))
        return None
    return answer


def _directive_or_none(answer: object) -> Directive | None:
    if answer is None or isinstance(answer, Directive):
        return answer
    raise TypeError(f"expected a directive or None, got {type(answer).__name__}")


def _wait_ms(facts: Facts, failure: Failure, notes: list[ErrorRecord]) -> int:
    try:
        return backoff_ms(facts.policy.backoff, failure, facts.random)
    except BaseException as error:  # noqa: BLE001  # as for on_error; the library's back-off goes in for it
        notes.append(record_error(error, facts.now_ms, note="raised by backoff"))
        return backoff_ms(_DEFAULT_BACKOFF, failure, facts.random)


def _bury(facts: Facts, reason: str, *records: ErrorRecord) -> Verdict:
    tally = read_tally(facts.tally).with_errors(*records).buried(reason)
    return Verdict(Buried(facts.job_id, facts.token, encode_tally(tally)), reason)


def _as_exception(error: BaseException) -> Exception:
    if isinstance(error, Exception):
        return error
    if type(error).__name__ == "CancelledError":  # asyncio's; this room does without asyncio
        wrapped = RuntimeError("the handler raised CancelledError, though nobody had cancelled it")
    else:
        wrapped = RuntimeError(f"the handler raised {describe(error)}")
    wrapped.__cause__ = error
    return wrapped
