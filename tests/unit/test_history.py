"""The history checker: a good history passes, and each class of broken ones is caught."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fault.events import (
    Asked,
    Cancelled,
    Cancelling,
    Claimed,
    Ended,
    Ending,
    Enqueued,
    Event,
    Fault,
    Recorder,
    Renewed,
    Settled,
    Settling,
    Started,
    read,
)
from tests.fault.history import BROKEN, Verdict, check, summed
from tests.shards import State

LEASE_MS = 1000


def enqueued(at: float = 0, due: int = 100, job: str = "a") -> list[Event]:
    return [Asked(at, job), Enqueued(at + 1, job, True, due)]


def claimed(at: float, worker: str = "w1", due: int = 100, job: str = "a") -> list[Event]:
    fence = int(at * 1000)
    return [Claimed(at, worker, job, fence, due, LEASE_MS, False), Started(at + 1, worker, job, fence)]


def settled(
    at: float,
    fence_at: float,
    ending: Ending = "ack",
    *,
    worker: str = "w1",
    accepted: bool = True,
    job: str = "a",
) -> list[Event]:
    fence = int(fence_at * 1000)
    return [
        Ended(at, worker, job, fence, True),
        Settling(at, worker, job, fence, ending),
        Settled(at + 1, at, worker, job, fence, ending, accepted),
    ]


def renewed(at: float, fence_at: float, *, worker: str = "w1", accepted: bool = True) -> Renewed:
    return Renewed(at + 1, at, worker, "a", int(fence_at * 1000), LEASE_MS, accepted)


def sending(at: float, fence_at: float, ending: Ending = "ack") -> Settling:
    return Settling(at, "w1", "a", int(fence_at * 1000), ending)


RUN: Sequence[Event] = [*enqueued(), *claimed(110), *settled(150, 110)]

GOOD: dict[str, tuple[Sequence[Event], State | None]] = {
    "run once": (RUN, None),
    "retried": (
        [
            *enqueued(),
            *claimed(110),
            *settled(150, 110, "retry"),
            *claimed(300, "w2", 250),
            *settled(310, 300),
        ],
        None,
    ),
    "buried": (
        [*enqueued(), *claimed(110), *settled(150, 110, "bury")],
        State(dead={"a": 1}, payload={"a": b""}),
    ),
    "cancelled": ([*enqueued(), Cancelling(5, "a"), Cancelled(6, "a")], None),
    "cancelled, nobody knows": ([*enqueued(), Cancelling(5, "a")], None),
    "acked, nobody knows": ([*enqueued(), *claimed(110), sending(150, 110)], None),
    "refused": ([Asked(0, "a")], None),
    "not acknowledged, run": (
        [Asked(0, "a"), *claimed(110), *settled(150, 110)],
        None,
    ),
    "killed, taken over, ended": (
        [*enqueued(), *claimed(110), Fault(120, "kill", "w1"), *claimed(700, "w2"), *settled(710, 700)],
        None,
    ),
    "taken over in the very millisecond of its deadline": (
        [
            *enqueued(),
            *claimed(110.9),
            Fault(120, "stop", "w1", 2000),
            *claimed(1110.1, "w2"),
            *settled(1120, 1110.1),
        ],
        None,
    ),
    "lease run out under a frozen holder, whose ack is refused": (
        [
            *enqueued(),
            *claimed(110),
            Fault(120, "stop", "w1", 2000),
            *claimed(1200, "w2"),
            *settled(2010, 110, accepted=False),
            *settled(2020, 1200, worker="w2"),
        ],
        None,
    ),
    "renewed by its holder until the server forgot it": (
        [
            *enqueued(),
            *claimed(110),
            renewed(800, 110),
            Fault(900, "failover"),
            *claimed(950, "w2"),
            *settled(960, 950),
        ],
        None,
    ),
}

BAD: dict[str, tuple[str, Sequence[Event], State | None]] = {
    "vanished": ("lost", enqueued(), None),
    "vanished after a claim": ("lost", [*enqueued(), *claimed(110)], None),
    "vanished after a retry": ("lost", [*enqueued(), *claimed(110), *settled(150, 110, "retry")], None),
    "vanished after a refused ack": (
        "lost",
        [*enqueued(), *claimed(110), *settled(150, 110, accepted=False)],
        None,
    ),
    "still waiting": ("stuck", enqueued(), State(schedule={"a": 100}, payload={"a": b""})),
    "back again after its ack": ("stuck", RUN, State(schedule={"a": 100}, payload={"a": b""})),
    "held by nobody": (
        "stuck",
        [*enqueued(), *claimed(110)],
        State(processing={"a": 9}, payload={"a": b""}, lease={"a": ""}),
    ),
    "nobody wrote it": ("unexpected", [*claimed(110), *settled(150, 110)], None),
    "run after its cancellation": (
        "unexpected",
        [*enqueued(), Cancelling(5, "a"), Cancelled(6, "a"), *claimed(110), *settled(150, 110)],
        None,
    ),
    "dead though nobody buried it": ("unexpected", RUN, State(dead={"a": 1}, payload={"a": b""})),
    "claimed early": ("early", [*enqueued(), *claimed(90), *settled(150, 90)], None),
    "claimed before the time that was promised": (
        "early",
        [*enqueued(due=500), *claimed(110), *settled(150, 110)],
        None,
    ),
    "retried early": (
        "early",
        [
            *enqueued(),
            *claimed(110),
            *settled(150, 110, "retry"),
            *claimed(300, "w1", 400),
            *settled(310, 300),
        ],
        None,
    ),
    "acked twice": (
        "double_acked",
        [
            *enqueued(),
            *claimed(110),
            Fault(115, "stop", "w1", 2000),
            *claimed(1200, "w2"),
            *settled(1210, 1200, worker="w2"),
            *settled(2001, 110),
        ],
        None,
    ),
    "two live leases": (
        "overlapping",
        [*enqueued(), *claimed(110), Fault(120, "stop", "w1", 300), *claimed(200, "w2"), *settled(210, 200)],
        None,
    ),
    "two live leases, the first renewed": (
        "overlapping",
        [
            *enqueued(),
            *claimed(110),
            renewed(1000, 110),
            Fault(120, "cut", "w1", 1500),
            *claimed(1500, "w2"),
            *settled(1510, 1500),
        ],
        None,
    ),
    "one fence twice": (
        "overlapping",
        [*enqueued(), *claimed(110), *claimed(110, "w2"), *settled(150, 110)],
        None,
    ),
    "a stale ack accepted": (
        "stale",
        [
            *enqueued(),
            *claimed(110),
            Fault(115, "stop", "w1", 2000),
            *claimed(1200, "w2"),
            *settled(2001, 110),
        ],
        None,
    ),
    "a stale renewal accepted": (
        "stale",
        [
            *enqueued(),
            *claimed(110),
            Fault(115, "stop", "w1", 2000),
            *claimed(1200, "w2"),
            renewed(2001, 110),
            *settled(2100, 1200),
        ],
        None,
    ),
    "run twice for no reason": (
        "unexplained",
        [*enqueued(), *claimed(110), *claimed(1200, "w2"), *settled(1210, 1200)],
        None,
    ),
    "run twice, and another worker was hit": (
        "unexplained",
        [*enqueued(), *claimed(110), Fault(120, "kill", "w3"), *claimed(1200, "w2"), *settled(1210, 1200)],
        None,
    ),
    "in two places": (
        "misplaced",
        [*enqueued(), *claimed(110), *settled(120, 110, "bury")],
        State(schedule={"b": 1}, dead={"a": 1, "b": 1}, payload={"a": b"", "b": b""}),
    ),
    "a payload left over": ("misplaced", RUN, State(payload={"a": b""})),
    "a lease left over": ("misplaced", RUN, State(lease={"a": "token"})),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_passes(name: str) -> None:
    events, final = GOOD[name]
    verdict = check(events, final)
    assert verdict.broken() == {}
    assert "lost 0" in str(verdict)


@pytest.mark.parametrize("name", BAD)
def test_a_broken_history_is_caught(name: str) -> None:
    kind, events, final = BAD[name]
    assert kind in check(events, final).broken()


def test_every_broken_promise_is_tried() -> None:
    assert {kind for kind, _, _ in BAD.values()} == set(BROKEN)


def test_what_is_harmless_is_counted() -> None:
    again = GOOD["killed, taken over, ended"][0]
    verdict = check(
        [
            *again,
            *GOOD["not acknowledged, run"][0][0:0],
            Asked(0, "b"),
            *claimed(110, job="b"),
            *settled(120, 110, job="b"),
        ]
    )
    assert (verdict.duplicated, verdict.recovered, verdict.runs, verdict.acknowledged) == (["a"], ["b"], 3, 1)
    assert verdict.faults == {"kill": 1}
    assert sorted(verdict.ok) == ["a", "b"]


def test_late_starts_are_counted() -> None:
    events = [*enqueued(), *claimed(5000), *settled(5010, 5000)]
    assert check(events).late == ["a"]
    assert check(events, late_ms=10_000).late == []


def test_events_survive_a_process_and_a_line_cut_short(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "one")
    recorder.write(*RUN)
    recorder.close()
    with (tmp_path / "one.jsonl").open("ab") as file:
        file.write(b'{"type":"Ack')
    assert sorted(read(tmp_path), key=repr) == sorted(RUN, key=repr)
    assert check(read(tmp_path)) == check(RUN) == Verdict(ok=["a"], acknowledged=1, runs=1)


def test_several_verdicts_are_one() -> None:
    one = Verdict(ok=["a"], lost=["b"], acknowledged=2, runs=1, faults={"kill": 1, "cut": 2})
    other = Verdict(ok=["a"], stale=["c"], acknowledged=3, runs=4, faults={"kill": 2})
    total = summed([one, other])
    assert total == Verdict(
        ok=["a", "a"], lost=["b"], stale=["c"], acknowledged=5, runs=5, faults={"kill": 3, "cut": 2}
    )
    assert set(total.broken()) == {"lost", "stale"}
    assert (one.ok, other.ok) == (["a"], ["a"])
