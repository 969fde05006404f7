"""Names and ids at the door. Faults B14, B16, B17, B19, B20, B21."""

from __future__ import annotations

import os
from typing import cast

import pytest

from aiodq._core.names import (
    JOB_ID_BYTES,
    check_headers,
    check_job_id,
    check_prefix,
    check_queue_name,
    check_task_name,
    job_id_from,
)


@pytest.mark.parametrize(
    "name", ["orders", "p:c", "a.b", "team/mail", "../x", "a+b", "a@b", "x" * 128, "o/0x", "0", "a-0"]
)
def test_queue_names_that_are_one_key_part(name: str) -> None:
    assert check_queue_name(name) == name


@pytest.mark.parametrize("name", ["a*b", "a?b", "[a]", "a b", "a\\b", "a\nb", "ä", "a{b", "}", "{}", "a^b"])
def test_b17_b21_queue_names_that_would_match_others_or_move_the_hash_tag_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="expected only letters") as caught:
        check_queue_name(name)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("name", ["", "x" * 129])
def test_queue_names_have_1_to_128_characters(name: str) -> None:
    with pytest.raises(ValueError, match="expected 1 to 128 characters"):
        check_queue_name(name)


@pytest.mark.parametrize("name", ["orders/0", "/7", "a/b/12"])
def test_names_of_shards_are_no_queues(name: str) -> None:
    with pytest.raises(ValueError, match="shards; write -<digits>"):
        check_queue_name(name)


@pytest.mark.parametrize("prefix", ["p{}", "", "a*"])
def test_b21_a_prefix_never_holds_braces(prefix: str) -> None:
    with pytest.raises(ValueError, match="prefix"):
        check_prefix(prefix)


@pytest.mark.parametrize("check", [check_queue_name, check_prefix, check_job_id, check_task_name])
@pytest.mark.parametrize("name", [None, 7, b"orders", True])
def test_names_are_strings(check: object, name: object) -> None:
    with pytest.raises(TypeError, match="expected a string"):
        cast("type[str]", check)(name)


@pytest.mark.parametrize(
    "job_id", ["a:b", "a:b:c", ":", "x:lease", "a/b?c", "🦄", "a b", "{t7}x", "x" * 256, "é" * 128, "'\""]
)
def test_b14_b20_ids_with_any_visible_text_are_kept_as_they_are(job_id: str) -> None:
    assert check_job_id(job_id) == job_id


@pytest.mark.parametrize("job_id", ["a\nb", "\x00", "a\x7f", "\x85"])
def test_b20_control_characters_in_ids_are_refused(job_id: str) -> None:
    with pytest.raises(ValueError, match="control characters are not allowed"):
        check_job_id(job_id)


def test_b20_lone_surrogates_are_refused_readably() -> None:
    with pytest.raises(ValueError, match=r"job id 'a\\ud800': no valid Unicode"):
        check_job_id("a\ud800")


@pytest.mark.parametrize("job_id", ["", "x" * 257, "é" * 129, "x" * 4096])
def test_ids_have_1_to_256_bytes(job_id: str) -> None:
    with pytest.raises(ValueError, match="expected 1 to 256 bytes") as caught:
        check_job_id(job_id)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("job_id", ["{}x", "{t7}", "x{t7}", "{t7", "t7}x", "{a{b}x", "{a}b}", "}", "{"])
def test_b21_braces_only_stand_around_a_shard_key_in_front(job_id: str) -> None:
    with pytest.raises(ValueError, match="braces only stand around a shard key"):
        check_job_id(job_id)


def test_headers_are_copied_strings() -> None:
    given = {"trace": "1"}
    taken = check_headers(given)
    given["trace"] = "2"
    assert taken == {"trace": "1"}


@pytest.mark.parametrize("headers", [{"a": 1}, {1: "a"}, [("a", "b")], "a=b", {"a": None}])
def test_headers_of_other_types_are_refused(headers: object) -> None:
    with pytest.raises(TypeError, match="header"):
        check_headers(cast("dict[str, str]", headers))


@pytest.mark.parametrize("headers", [{"": "a"}, {"a": "\ud800"}])
def test_headers_that_no_text_holds_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="header"):
        check_headers(headers)


def test_new_ids_are_valid_short_and_differ() -> None:
    ids = {job_id_from(os.urandom(JOB_ID_BYTES)) for _ in range(1000)}
    assert len(ids) == 1000
    assert all(len(check_job_id(i)) == JOB_ID_BYTES for i in ids)
    assert "".join(ids).isascii()
    assert "".join(ids).isalnum()
