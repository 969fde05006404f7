"""Every end of a run has one documented settlement: the table of `aiodq._core.decision`, row by row."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from aiodq._core import decision
from aiodq._core.backoff import Failure, Fixed
from aiodq._core.decision import Facts, Verdict, WrongState
from aiodq._core.directives import Bury, Directive, Retry, Snooze
from aiodq._core.due import Due
from aiodq._core.policy import Policy
from aiodq._core.settlement import Acked, Buried, Deferred, Released
from aiodq._core.tally import EMPTY, SPENT, Reservation, Tally, encode_tally, read_tally


def facts(*, failures: int = 0, handbacks: int = 0, random: float = 0.5, **rules: Any) -> Facts:
    rules.setdefault("backoff", Fixed(7))
    before = Tally(failures=failures, handbacks=handbacks)
    return Facts(
        job_id="j1",
        token="tok",
        task="t",
        policy=Policy(**rules),
        tally=None if before == EMPTY else encode_tally(before),
        now_ms=1_000_000,
        random=random,
    )


def saying(answer: object) -> Callable[[Failure], Any]:
    return lambda _failure: answer


def deferred(verdict: Verdict) -> tuple[str, Due, Tally]:
    settlement = verdict.settlement
    assert isinstance(settlement, Deferred), settlement
    assert (settlement.job_id, settlement.token) == ("j1", "tok")
    return settlement.outcome, settlement.due, read_tally(settlement.tally)


def buried(verdict: Verdict) -> Tally:
    settlement = verdict.settlement
    assert isinstance(settlement, Buried), settlement
    assert (settlement.job_id, settlement.token) == ("j1", "tok")
    return read_tally(settlement.tally)


def after(error: BaseException | None, **given: Any) -> Verdict:
    return decision.after_run(facts(**given), error, None)


# ---- ends without an error, and directives


def test_a_run_that_returns_is_acked() -> None:
    assert after(None) == Verdict(Acked("j1", "tok"))


def test_an_id_given_by_the_caller_is_remembered() -> None:
    verdict = decision.after_run(msgspec.structs.replace(facts(), remember=True), None, None)
    assert verdict.settlement == Acked("j1", "tok", remember=True)


def test_snooze_is_no_failure() -> None:
    outcome, due, tally = deferred(after(Snooze(60), failures=2))
    assert (outcome, due, tally.failures, tally.snoozes) == ("snooze", Due(60_000), 2, 1)


def test_snooze_has_no_end() -> None:
    outcome, _, tally = deferred(after(Snooze(60), failures=2, max_attempts=1))
    assert (outcome, tally.failures) == ("snooze", 2)


def test_retry_counts_and_waits_as_it_says() -> None:
    outcome, due, tally = deferred(after(Retry(3, reason="busy")))
    assert (outcome, due, tally.failures) == ("retry", Due(3000), 1)
    assert str(tally.errors[0]) == "Retry: busy"


def test_retry_without_a_time_goes_by_the_backoff() -> None:
    assert deferred(after(Retry()))[1] == Due(7000)


def test_retry_of_the_last_attempt_buries() -> None:
    tally = buried(after(Retry(3, reason="busy"), failures=2, max_attempts=3))
    assert tally.failures == 3
    assert tally.reason == "failed 3 of 3 attempts: Retry: busy"


def test_bury_goes_before_all_rules() -> None:
    tally = buried(after(Bury("no such order"), retry_on=(Exception,)))
    assert (tally.reason, tally.failures) == ("no such order", 0)


def test_a_directive_alone_in_a_group_is_obeyed() -> None:
    assert deferred(after(ExceptionGroup("g", [Snooze(5)])))[0] == "snooze"


def test_a_directive_beside_another_error_is_a_failure() -> None:
    outcome, due, tally = deferred(after(ExceptionGroup("g", [Snooze(5), ValueError("x")])))
    assert (outcome, due, tally.failures) == ("retry", Due(7000), 1)


# ---- failures and rules


def test_a_failure_waits_by_the_backoff_and_is_noted() -> None:
    verdict = after(ValueError("boom"), failures=1)
    outcome, due, tally = deferred(verdict)
    assert (outcome, due, tally.failures) == ("retry", Due(7000), 2)
    assert (tally.errors[0].at_ms, str(tally.errors[0])) == (1_000_000, "ValueError: boom")
    assert verdict.error == "ValueError: boom"


def test_max_attempts_counts_the_first_run() -> None:
    assert buried(after(ValueError("boom"), max_attempts=1)).failures == 1
    assert buried(after(ValueError("boom"), failures=2, max_attempts=3)).reason == (
        "failed 3 of 3 attempts: ValueError: boom"
    )
    assert deferred(after(ValueError("boom"), failures=1, max_attempts=3))[0] == "retry"


def test_bury_on_goes_before_retry_on() -> None:
    tally = buried(after(KeyError("k"), bury_on=(LookupError,), retry_on=(KeyError,)))
    assert tally.reason == "in bury_on: KeyError: 'k'"


def test_what_is_not_in_retry_on_is_buried() -> None:
    assert deferred(after(ConnectionResetError(), retry_on=(ConnectionError,)))[0] == "retry"
    assert (
        buried(after(ValueError("v"), retry_on=(ConnectionError,))).reason == "not in retry_on: ValueError: v"
    )


def test_b42_a_group_is_retried_when_all_its_leaves_are() -> None:
    rules: dict[str, Any] = {"retry_on": (ConnectionError,)}
    only = ExceptionGroup("g", [ConnectionError("a"), ExceptionGroup("h", [ConnectionResetError("b")])])
    mixed = ExceptionGroup("g", [ConnectionError("a"), ValueError("b")])
    base = BaseExceptionGroup("g", [ConnectionError("a"), asyncio.CancelledError()])
    assert deferred(after(only, **rules))[0] == "retry"
    assert "ValueError: b" in buried(after(mixed, **rules)).reason
    assert deferred(after(base, **rules))[0] == "retry"


def test_b42_one_leaf_in_bury_on_buries_a_group() -> None:
    error = ExceptionGroup("g", [ConnectionError("a"), PermissionError("b")])
    assert "in bury_on" in buried(after(error, bury_on=(PermissionError,))).reason


def test_a_rule_may_name_the_group_itself() -> None:
    error = ExceptionGroup("g", [ValueError()])
    assert deferred(after(error, retry_on=(ExceptionGroup,)))[0] == "retry"


@pytest.mark.parametrize(
    "error",
    [
        asyncio.CancelledError(),
        SystemExit(1),
        KeyboardInterrupt(),
        GeneratorExit(),
        BaseException("odd"),
        BaseExceptionGroup("g", [SystemExit(), KeyboardInterrupt()]),
        StopIteration(),
    ],
)
def test_b33_b34_what_is_no_exception_is_a_failure_like_others(error: BaseException) -> None:
    outcome, _, tally = deferred(after(error, retry_on=(Exception,)))
    assert (outcome, tally.failures) == ("retry", 1)
    assert tally.errors[0].type == type(error).__qualname__
    assert buried(after(error, max_attempts=1)).failures == 1


# ---- on_error and own back-offs


def test_on_error_is_asked_first_and_told_what_happened() -> None:
    seen: list[Failure] = []

    def on_error(failure: Failure) -> Directive | None:
        seen.append(failure)
        return Bury("enough")

    error = ValueError("boom")
    assert buried(after(error, failures=4, on_error=on_error)).reason == "enough"
    assert seen == [Failure(error=error, failures=5, task="t", job_id="j1")]


def test_on_error_may_choose_another_wait_or_a_snooze() -> None:
    assert deferred(after(ValueError(), on_error=saying(Retry(2))))[1] == Due(2000)
    outcome, due, tally = deferred(after(ValueError("x"), on_error=saying(Snooze(9))))
    assert (outcome, due, tally.failures, tally.snoozes) == ("snooze", Due(9000), 0, 1)
    assert str(tally.errors[0]) == "ValueError: x"


def test_on_error_cannot_go_beyond_the_last_attempt() -> None:
    assert buried(after(ValueError(), max_attempts=1, on_error=saying(Retry(2)))).failures == 1


def test_on_error_may_raise_its_directive() -> None:
    def on_error(_: Failure) -> Directive | None:
        raise Bury("raised")

    assert buried(after(ValueError(), on_error=on_error)).reason == "raised"


def test_on_error_is_given_an_exception_whatever_was_raised() -> None:
    seen: list[Exception] = []

    def on_error(failure: Failure) -> Directive | None:
        seen.append(failure.error)
        return None

    raised = (asyncio.CancelledError(), SystemExit(2))
    for error in raised:
        after(error, on_error=on_error)
    assert all(isinstance(error, RuntimeError) for error in seen)
    assert [error.__cause__ for error in seen] == list(raised)


@pytest.mark.parametrize("hook", ["on_error", "backoff"])
@pytest.mark.parametrize(
    "error", [ValueError("hook"), asyncio.CancelledError(), SystemExit(1), KeyboardInterrupt()]
)
def test_b43_an_error_in_a_rule_is_noted_and_the_job_fails_as_it_would(
    hook: str, error: BaseException
) -> None:
    def broken(_: Failure) -> Any:
        raise error

    outcome, due, tally = deferred(after(KeyError("job"), random=0.0, **{hook: broken}))
    assert (outcome, tally.failures) == ("retry", 1)
    assert due == (Due(7000) if hook == "on_error" else Due(0))
    assert [record.type for record in tally.errors] == ["KeyError", type(error).__qualname__]
    assert f"raised by {hook}" in tally.errors[1].message


@pytest.mark.parametrize(("hook", "answer"), [("on_error", "retry"), ("on_error", 5), ("backoff", "soon")])
def test_b43_a_useless_answer_of_a_rule_is_noted(hook: str, answer: object) -> None:
    _, _, tally = deferred(after(KeyError("job"), **{hook: saying(answer)}))
    assert [record.type for record in tally.errors] == ["KeyError", "TypeError"]


# ---- stopped by the worker


@pytest.mark.parametrize("error", [asyncio.CancelledError(), ValueError("while cleaning up")])
def test_a_timeout_is_a_failure_with_timeout_error(error: BaseException) -> None:
    verdict = decision.after_run(facts(timeout_ms=1500), error, "timeout")
    outcome, _, tally = deferred(verdict)
    assert (outcome, tally.failures) == ("retry", 1)
    assert str(tally.errors[0]) == "TimeoutError: stopped at its timeout of 1.5 s"
    assert type(error).__name__ in tally.errors[0].traceback


def test_rules_see_a_timeout_as_timeout_error() -> None:
    verdict = decision.after_run(facts(bury_on=(TimeoutError,)), asyncio.CancelledError(), "timeout")
    assert "in bury_on: TimeoutError" in buried(verdict).reason


@pytest.mark.parametrize("error", [asyncio.CancelledError(), ValueError("while cleaning up")])
def test_b136_a_shutdown_gives_back_uncounted(error: BaseException) -> None:
    verdict = decision.after_run(facts(failures=9, max_attempts=10), error, "shutdown")
    assert verdict.settlement == Released("j1", "tok")


@pytest.mark.parametrize("stopped", ["timeout", "shutdown"])
def test_a_handler_that_still_ends_by_itself_is_taken_at_its_word(stopped: decision.StopReason) -> None:
    assert decision.after_run(facts(), None, stopped).settlement == Acked("j1", "tok")
    assert deferred(decision.after_run(facts(), Snooze(1), stopped))[0] == "snooze"
    assert buried(decision.after_run(facts(), Bury("x"), stopped)).reason == "x"


def test_a_wrong_state_is_the_deployments_fault() -> None:
    outcome, due, tally = deferred(after(WrongState("expected Pools, got None"), failures=3))
    assert (outcome, due, tally.failures, tally.handbacks) == ("release", Due(1000), 3, 1)
    assert deferred(after(ExceptionGroup("g", [WrongState("x")])))[0] == "release"


# ---- ends without a run


def test_b149_hand_backs_wait_longer_each_time_up_to_a_minute() -> None:
    waits: list[int] = []
    for handbacks in (0, 1, 2, 5, 6, 7, 100, 10**9):
        outcome, due, tally = deferred(
            decision.handed_back(facts(handbacks=handbacks, failures=2), "unknown")
        )
        assert (outcome, tally.failures, tally.handbacks) == ("release", 2, handbacks + 1)
        waits.append(due.ms)
    assert waits == [1000, 2000, 4000, 32_000, 60_000, 60_000, 60_000, 60_000]


def test_b27_an_unreadable_payload_is_buried_with_the_reason() -> None:
    tally = buried(decision.unreadable(facts(), ValueError("it begins with b'zz'")))
    assert tally.reason == "ValueError: it begins with b'zz'"
    assert tally.errors[0].type == "ValueError"


def test_a_job_may_start_until_its_expiry() -> None:
    assert decision.expired(facts(), due_ms=0) is None
    assert decision.expired(facts(expires_ms=500), due_ms=1_000_000 - 500) is None


def test_an_expired_job_is_dropped_or_buried() -> None:
    dropped = decision.expired(facts(expires_ms=500), due_ms=1_000_000 - 501)
    assert dropped is not None
    assert dropped.settlement == Acked("j1", "tok", outcome="expire")
    kept = decision.expired(facts(expires_ms=500, on_expired="bury"), due_ms=1_000_000 - 501)
    assert kept is not None
    assert "501 ms after its due time" in buried(kept).reason


def test_b139_the_third_crash_buries() -> None:
    assert decision.crashed_out(facts(), crashes=2) is None
    verdict = decision.crashed_out(facts(), crashes=3)
    assert verdict is not None
    assert "died 3 times" in buried(verdict).reason
    assert decision.crashed_out(facts(max_crashes=5), crashes=4) is None


def test_putting_off_changes_no_counter() -> None:
    outcome, due, tally = deferred(decision.put_off(facts(failures=3, handbacks=2), 500, "why"))
    assert (outcome, due, tally) == ("release", Due(500), Tally(failures=3, handbacks=2))


# ---- rates

BOOKED = Reservation(due_ms=900_000, at_ms=990_000, losses=0)


def waiting(**rules: Any) -> Facts:
    """Of a job that has failed once, and was put off by its rate before this run."""
    blob = encode_tally(Tally(failures=1, snoozes=2, reservation=BOOKED))
    return msgspec.structs.replace(facts(**rules), tally=blob)


def test_a_job_that_its_rate_puts_off_goes_back_uncounted_until_its_moment() -> None:
    outcome, due, tally = deferred(decision.deferred(facts(failures=1), BOOKED))
    assert (outcome, due) == ("release", Due(990_000, relative=False))
    assert tally == Tally(failures=1, reservation=BOOKED)


@pytest.mark.parametrize("end", [Retry(5), Snooze(5), ValueError("x")])
def test_the_next_run_after_a_failure_or_a_snooze_asks_again(end: Exception) -> None:
    _, _, tally = deferred(decision.after_run(waiting(), end, None))
    assert tally.reservation is None


def test_a_run_that_a_shutdown_stops_has_used_its_start_but_keeps_the_jobs_due_time() -> None:
    verdict = decision.after_run(waiting(), asyncio.CancelledError(), "shutdown")
    outcome, due, tally = deferred(verdict)
    assert (outcome, due) == ("release", Due(1_000_000, relative=False))
    assert tally.reservation == Reservation(due_ms=900_000, at_ms=1_000_000, losses=SPENT)
    assert (tally.failures, tally.snoozes) == (1, 2)


def test_so_has_one_that_met_the_wrong_state() -> None:
    _, _, tally = deferred(decision.after_run(waiting(), WrongState("x"), None))
    assert tally.reservation is not None
    assert tally.reservation.losses == SPENT


def test_a_stop_of_a_job_without_a_rate_is_a_plain_release() -> None:
    verdict = decision.after_run(facts(failures=1), asyncio.CancelledError(), "shutdown")
    assert verdict.settlement == Released("j1", "tok")


def test_a_worker_that_does_not_know_the_task_leaves_the_reservation() -> None:
    _, _, tally = deferred(decision.handed_back(waiting(), "unknown"))
    assert tally.reservation == BOOKED
    _, _, tally = deferred(decision.put_off(waiting(), 1000, "still being stopped"))
    assert tally.reservation == BOOKED


def test_a_replayed_job_asks_anew() -> None:
    assert Tally(failures=1, reservation=BOOKED).revived().reservation is None
