"""Stored jobs in words."""

from __future__ import annotations

import pytest

from aiodq._core.envelope import Envelope, encode_envelope
from aiodq._core.explain import explain_job, matches, show_job
from aiodq._core.store import Found, ShardStats
from aiodq._core.tally import ErrorRecord, Reservation, Tally, encode_tally

NOW = 1_800_000_000_000
PAYLOAD = encode_envelope(Envelope(1, "close_order"))
FAILED = encode_tally(
    Tally(failures=2, snoozes=1).with_errors(ErrorRecord(NOW - 5000, "OSError", "no database"))
)


def stats(*, paused: str | None = None, idle: int = 1, holders: int = 0) -> ShardStats:
    return ShardStats(NOW, 0, 0, 0, 0, 0, 0, paused, idle, holders)


def said(job: Found, of: ShardStats | None = None) -> list[str]:
    explanation = explain_job(job, "orders", of or stats())
    assert (explanation.job_id, explanation.state) == (job.job_id, job.was)
    assert str(explanation) == explanation.text
    return explanation.text.split("\n")


@pytest.mark.parametrize(
    ("wait_ms", "says"),
    [
        (250, "it is due in 250 ms"),
        (59_900, "it is due in 59.9 s"),
        (1_800_000, "it is due in 30 min 0 s"),
        (7_260_000, "it is due in 2 h 1 min"),
        (90_000_000, "it is due in 1 d 1 h"),
        (-3000, "it is due, and waits for a free worker since 3.0 s"),
    ],
)
def test_a_scheduled_job(wait_ms: int, says: str) -> None:
    lines = said(Found("x", "scheduled", NOW + wait_ms, NOW + wait_ms, PAYLOAD))
    assert lines[0].startswith("job 'x' of queue 'orders' for task 'close_order': scheduled for 2027-01-1")
    assert lines[1:] == [says]


def test_what_keeps_a_due_job_from_running() -> None:
    job = Found("x", "scheduled", NOW - 1, NOW - 1, PAYLOAD, FAILED, crashes=1)
    assert said(job, stats(paused="stock-taking", idle=0))[2:] == [
        "no worker is known to serve this queue right now",
        "the queue is paused: stock-taking",
        "failures so far: 2",
        "crashes of its worker so far: 1",
        "snoozes so far: 1",
        "error at 2027-01-15 07:59:55.000+00:00: OSError: no database",
    ]
    assert said(job, stats(paused=""))[2] == "the queue is paused"


def test_a_job_that_waits_for_its_rate() -> None:
    blob = encode_tally(Tally(reservation=Reservation(NOW - 5000, NOW + 250, 0)))
    says = said(Found("x", "scheduled", NOW + 250, NOW + 250, PAYLOAD, blob))
    own = "its own due time was 2027-01-15 07:59:55.000+00:00"
    assert says[1:] == ["it is due in 250 ms", f"its task's rate has put it off; {own}"]
    moved = said(Found("x", "scheduled", NOW + 60_000, NOW + 60_000, PAYLOAD, blob))
    assert moved[1:] == ["it is due in 1 min 0 s"]


def test_a_job_that_is_held() -> None:
    held = Found("x", "processing", NOW + 12_000, NOW, PAYLOAD, holder="w1", interruptions=3)
    assert said(held) == [
        "job 'x' of queue 'orders' for task 'close_order': held by worker w1",
        "its lease lasts 12.0 s more unless it is renewed",
        "interruptions so far: 3",
    ]
    expired = Found("x", "processing", NOW - 12_000, NOW, PAYLOAD, holder="w1")
    assert said(expired)[1] == "its lease has expired 12.0 s ago: the next steady worker takes it over"


def test_a_job_that_is_nowhere_or_dead_or_done() -> None:
    assert said(Found("x", "absent")) == [
        "job 'x' of queue 'orders': it has ended, was cancelled, or never was in this queue"
    ]
    assert "its id is still remembered" in said(Found("x", "done"))[0]
    buried = Found("x", "dead", NOW - 60_000, None, PAYLOAD, encode_tally(Tally().buried("too old")))
    assert said(buried) == ["job 'x' of queue 'orders' for task 'close_order': buried 1 min 0 s ago, too old"]


def test_b51_lost_and_unreadable_payloads_are_said_so() -> None:
    assert said(Found("x", "scheduled", NOW, NOW, None))[-1] == "its payload is lost: it cannot be run"
    assert show_job(Found("x", "scheduled", NOW, NOW, b"\xff")).task == "?"
    assert show_job(Found("x", "dead", NOW, None, None)).due_at is None


def test_dead_letters_are_matched_by_their_last_error() -> None:
    blob = encode_tally(Tally().with_errors(ErrorRecord(0, "OSError", ""), ErrorRecord(0, "a.b.NoStock", "")))
    job = Found("x", "dead", NOW, None, PAYLOAD, blob)
    assert matches(job, None, "NoStock")
    assert matches(job, "close_order", "a.b.NoStock")
    assert not matches(job, None, "OSError")
    assert not matches(job, "ship", None)
    assert not matches(Found("x", "dead", NOW, None, PAYLOAD), None, "OSError")
