"""The history of a job survives every error text, every blob, and every version."""

from __future__ import annotations

import msgspec
import pytest

from aiodq._core import tally
from aiodq._core.tally import EMPTY, ErrorRecord, Tally, describe, encode_tally, read_tally, record_error


class Rude(Exception):
    """Raises from its own text."""

    def __str__(self) -> str:
        raise RuntimeError("no text for you")


class Ruder(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001
        return caught


def test_a_tally_comes_back_as_it_was_written() -> None:
    written = Tally(
        failures=2, snoozes=1, handbacks=4, errors=(ErrorRecord(5, "ValueError", "é", "tb"),), reason="why"
    )
    assert read_tally(encode_tally(written)) == written


def test_no_blob_is_an_empty_tally() -> None:
    assert read_tally(None) == EMPTY
    assert read_tally(b"") == EMPTY


def test_fields_of_later_versions_are_passed_over() -> None:
    blob = msgspec.msgpack.encode({"f": 3, "later": [1, 2], "e": [{"t": 1, "e": "X", "m": "m", "new": 1}]})
    assert read_tally(blob) == Tally(failures=3, errors=(ErrorRecord(1, "X", "m"),))


@pytest.mark.parametrize(
    "blob", [b"\xc1", b"garbage", b"\x81\xa1f\xa1x", b"\x93", bytes(range(256)), b"\x91" * 5000]
)
def test_a_broken_blob_counts_as_none_and_says_so(blob: bytes) -> None:
    read = read_tally(blob)
    assert (read.failures, read.snoozes) == (0, 0)
    assert "could not be read" in read.errors[0].message


def test_only_the_last_errors_are_kept() -> None:
    grown = EMPTY
    for n in range(20):
        grown = grown.failed(ErrorRecord(n, "E", str(n)))
    assert grown.failures == 20
    assert [record.at_ms for record in grown.errors] == [15, 16, 17, 18, 19]


def test_a_failure_ends_a_row_of_hand_backs() -> None:
    assert EMPTY.handed_back().handed_back().handbacks == 2
    assert EMPTY.handed_back().failed().handbacks == 0
    assert EMPTY.handed_back().snoozed().handbacks == 0


def test_b140_a_replayed_job_has_all_attempts_again_and_keeps_its_history() -> None:
    record = ErrorRecord(1, "E", "m")
    assert Tally(failures=9, snoozes=2, handbacks=3, errors=(record,), reason="r").revived() == Tally(
        errors=(record,)
    )


@pytest.mark.parametrize("error", [Rude(), Ruder()])
def test_b25_an_error_without_text_is_recorded_by_type(error: BaseException) -> None:
    record = record_error(raised(error), 7)
    assert record.type == type(error).__qualname__
    assert read_tally(encode_tally(EMPTY.failed(record))).errors == (record,)
    assert describe(error).startswith(type(error).__qualname__)


def test_b25_chained_errors_are_in_the_traceback() -> None:
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ValueError("outer") from inner
    except ValueError as error:
        text = record_error(error, 1).traceback
    assert "KeyError: 'inner'" in text
    assert "ValueError: outer" in text


def test_long_and_invalid_text_is_made_storable() -> None:
    record = record_error(raised(ValueError("\ud800" + "x" * 10_000_000)), 1)
    assert len(record.message) <= tally.MESSAGE_LENGTH
    assert len(record.traceback) <= tally.TRACEBACK_LENGTH
    assert read_tally(encode_tally(EMPTY.failed(record))).errors == (record,)


def test_endless_recursion_stays_short() -> None:
    def deeper() -> None:
        deeper()

    with pytest.raises(RecursionError) as caught:
        deeper()
    assert len(record_error(caught.value, 1).traceback) <= tally.TRACEBACK_LENGTH


def test_b42_the_leaves_of_a_group_are_in_the_text() -> None:
    inner = ExceptionGroup("inner", [ValueError("a"), KeyError("b")])
    record = record_error(raised(ExceptionGroup("outer", [inner, OSError("c")])), 1)
    assert record.type == "ExceptionGroup"
    for leaf in ("ValueError: a", "KeyError: 'b'", "OSError: c"):
        assert leaf in record.message


def test_groups_nested_deeper_than_the_stack_are_described() -> None:
    error = ExceptionGroup[Exception]("g", [ValueError("deep")])
    for _ in range(3000):
        error = ExceptionGroup[Exception]("g", [error])
    assert "ValueError: deep" in describe(error)
