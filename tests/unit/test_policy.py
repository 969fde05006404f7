"""Policies refuse what cannot be meant, and take a call's own options in."""

from __future__ import annotations

from typing import Any

import pytest

from aiodq._core.backoff import Exponential
from aiodq._core.directives import Bury
from aiodq._core.envelope import Carried
from aiodq._core.errors import ConfigError, PayloadError
from aiodq._core.policy import Policy


async def a_coroutine_function(_: object) -> None: ...


def test_the_defaults_are_those_of_the_manual() -> None:
    policy = Policy()
    assert (policy.max_attempts, policy.timeout_ms, policy.expires_ms, policy.keep_result_ms) == (
        10,
        3_600_000,
        None,
        0,
    )
    assert policy.backoff == Exponential(first=1, cap=300)
    assert (policy.max_crashes, policy.on_expired) == (3, "drop")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_attempts", 0),
        ("max_attempts", 2.5),
        ("max_attempts", True),
        ("max_crashes", 0),
        ("timeout_ms", 0),
        ("timeout_ms", 1.5),
        ("expires_ms", -1),
        ("keep_result_ms", -1),
        ("backoff", 5),
        ("backoff", a_coroutine_function),
        ("retry_on", ValueError),
        ("retry_on", [ValueError]),
        ("retry_on", (ValueError, "KeyError")),
        ("retry_on", (BaseException,)),
        ("bury_on", (Bury,)),
        ("on_error", "log"),
        ("on_error", a_coroutine_function),
        ("on_expired", "keep"),
    ],
)
def test_a_wrong_rule_is_named_with_its_value(field: str, value: object) -> None:
    wrong: dict[str, Any] = {field: value}
    with pytest.raises(ConfigError) as caught:
        Policy(**wrong)
    assert field.removesuffix("_ms") in str(caught.value)


def test_a_call_without_options_changes_nothing() -> None:
    policy = Policy(max_attempts=4)
    assert policy.with_carried(None) is policy
    assert policy.with_carried(Carried(given=True)) is policy


def test_the_options_of_a_call_go_first_and_none_is_a_value() -> None:
    carried = Carried(max_attempts=1, timeout_ms=None, expires_ms=5)
    policy = Policy(max_attempts=4, timeout_ms=10, keep_result_ms=7).with_carried(carried)
    assert (policy.max_attempts, policy.timeout_ms, policy.expires_ms, policy.keep_result_ms) == (
        1,
        None,
        5,
        7,
    )


def test_options_that_no_producer_writes_make_the_payload_unreadable() -> None:
    with pytest.raises(PayloadError, match="max_attempts"):
        Policy().with_carried(Carried(max_attempts=-3))
