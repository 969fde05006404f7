"""Options: which there are, what they may be, which of several places goes first."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

import pytest
from msgspec import UNSET

from aiodq._core.backoff import Fixed
from aiodq._core.envelope import Carried
from aiodq._core.errors import ConfigError
from aiodq._core.options import (
    LATER,
    NO_OPTIONS,
    CallSpec,
    TaskOptions,
    make_policy,
    read_call_options,
    read_task_options,
)
from aiodq._core.policy import Policy


def test_a_call_without_options_carries_nothing() -> None:
    assert read_call_options({}) == NO_OPTIONS == CallSpec(None, "keep", None, None)


def test_options_of_a_call_in_the_form_they_travel_in() -> None:
    spec = read_call_options(
        {
            "job_id": "a",
            "on_duplicate": "replace",
            "headers": {"h": "1"},
            "max_attempts": 3,
            "timeout": None,
            "expires": timedelta(seconds=1.5),
        }
    )
    carried = Carried(max_attempts=3, timeout_ms=None, expires_ms=1500, given=True)
    assert spec == CallSpec("a", "replace", {"h": "1"}, carried)
    assert carried.keep_result_ms is UNSET


def test_none_is_a_value_and_not_the_absence_of_one() -> None:
    assert read_call_options({"timeout": None}).carried == Carried(timeout_ms=None)
    assert make_policy({"timeout": None}, {"timeout": 5}).timeout_ms is None


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"job_idd": "a"}, TypeError, "unknown call option 'job_idd': did you mean 'job_id'?"),
        ({"delay": 3}, TypeError, "unknown call option 'delay': known are: expires, headers, job_id"),
        ({"backoff": Fixed(1)}, TypeError, "unknown call option 'backoff'"),
        ({"job_id": ""}, ValueError, "job id ''"),
        ({"job_id": None}, TypeError, "job id None: expected a string"),
        (
            {"on_duplicate": "ignore"},
            ValueError,
            'on_duplicate=\'ignore\': expected "keep", "replace" or "raise"',
        ),
        ({"max_attempts": 0}, ValueError, "max_attempts=0: expected at least 1 (it counts the first run)"),
        ({"max_attempts": 1.5}, TypeError, "max_attempts=1.5: expected a whole number"),
        ({"max_attempts": True}, TypeError, "max_attempts=True"),
        ({"max_attempts": None}, TypeError, "max_attempts=None"),
        ({"timeout": 0}, ValueError, "timeout=0: expected more than zero seconds"),
        ({"timeout": "5"}, TypeError, "timeout='5'"),
        ({"expires": -1}, ValueError, "expires=-1"),
        ({"expires": float("nan")}, ValueError, "expires=nan"),
        ({"headers": {"a": 1}}, TypeError, "header 'a': 1"),
    ],
)
def test_wrong_options_of_a_call_are_refused_by_name(
    options: dict[str, object], error: type[Exception], says: str
) -> None:
    with pytest.raises(error) as caught:
        read_call_options(options)
    assert says in str(caught.value)
    assert not isinstance(caught.value, ConfigError)


@pytest.mark.parametrize("name", sorted(LATER))
def test_options_of_later_versions_are_not_accepted_silently(name: str) -> None:
    with pytest.raises(TypeError, match=f"call option '{name}' is not in this version of aiodq"):
        read_call_options({name: None})
    with pytest.raises(TypeError, match=f"task option '{name}' is not in this version of aiodq"):
        read_task_options("t", {name: None})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_attempts": 0}, "max_attempts"),
        ({"timeout": 0}, "timeout=0"),
        ({"expires": "x"}, "expires='x'"),
        ({"retry_on": OSError}, "retry_on"),
        ({"on_expired": "keep"}, "on_expired"),
        ({"backoff": 3}, "backoff"),
        ({"headers": "a=b"}, "headers='a=b'"),
        ({"max_crashes": None}, "max_crashes"),
    ],
)
def test_wrong_options_of_a_task_are_wrong_set_ups_that_name_the_task(
    options: dict[str, object], says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_task_options("task close_order", options)
    assert str(caught.value).startswith("task close_order: ")
    assert says in str(caught.value)


def test_an_unknown_option_of_a_task_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="unknown task option 'max_retries': did you mean 'max_attempts'"):
        read_task_options("t", {"max_retries": 3})
    with pytest.raises(TypeError, match="unknown task option 'task_id': known are: "):
        read_task_options("t", {"task_id": "a"})  # a call's option, and no task's
    with pytest.raises(TypeError, match="unknown task option 'max_atempts': did you mean 'max_attempts'"):
        read_task_options("t", {"max_atempts": 3})


def test_the_handlers_options_go_before_the_stubs_and_those_before_the_queues() -> None:
    handler: TaskOptions = {"max_attempts": 1}
    stub: TaskOptions = {"max_attempts": 2, "timeout": 2}
    queue: TaskOptions = {"max_attempts": 3, "timeout": 3, "expires": 3}
    assert make_policy(handler, stub, queue) == Policy(max_attempts=1, timeout_ms=2000, expires_ms=3000)
    assert make_policy() == Policy()


def test_what_a_call_says_goes_before_all_of_them() -> None:
    policy = make_policy({"max_attempts": 5, "timeout": 5})
    spec = read_call_options({"max_attempts": 1, "expires": 1})
    assert policy.with_carried(spec.carried) == Policy(max_attempts=1, timeout_ms=5000, expires_ms=1000)


def test_given_options_are_copied() -> None:
    headers = {"a": "1"}
    read = read_task_options("t", {"headers": headers})
    headers["a"] = "2"
    assert cast("dict[str, str]", read.get("headers")) == {"a": "1"}
