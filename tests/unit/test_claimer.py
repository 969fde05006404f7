"""When a worker looks and what it asks for: all cases by plain calls with a clock of numbers."""

from __future__ import annotations

import itertools
import math

import pytest

from aiodq._core.lease import Lease
from aiodq._core.store import ClaimAnswer, ClaimRequest, Notice
from aiodq._worker.claimer import Claimer

SERVER_US = 1_800_000_000_000_000
LEASE = Lease("j", "tok", 1, 0, b"")


def answer(
    *,
    wait_s: float | None = 5.0,
    gave: int = 0,
    now_us: int = SERVER_US,
    seat: int = 1,
    others: int = 0,
    paused: bool = False,
    deaf: bool = False,
    stepped: bool = False,
    clamp_next: int = -1,
    clear: bool = False,
) -> ClaimAnswer:
    wait_us = None if wait_s is None else int(wait_s * 1e6)
    return ClaimAnswer(
        now_us, [LEASE] * gave, wait_us, seat, others, paused, deaf, stepped, clamp_next, clear
    )


def request(
    claimer: Claimer, now: float, *, free: int = 10, since: float | None = -100.0
) -> ClaimRequest | None:
    return claimer.request(free=free, now=now, unbroken_since=since)


def claim(
    claimer: Claimer, now: float, said: ClaimAnswer, *, free: int = 10, took: float = 0.2
) -> ClaimRequest:
    """One claim with its answer, `took` seconds later."""
    sent = request(claimer, now, free=free)
    assert sent is not None
    claimer.answered(said, sent=now, now=now + took)
    return sent


@pytest.fixture
def claimer() -> Claimer:
    return Claimer(lease_ms=30_000, now=0.0)


def test_the_first_claim_is_due_at_once(claimer: Claimer) -> None:
    asked = claim(claimer, 0.0, answer())
    assert asked == ClaimRequest(
        want=10, lease_ms=30_000, expected_now_us=None, steady_in_ms=0, far=1.5, clamp_from=-1
    )


def test_a_wait_counts_from_the_middle_of_the_round_trip(claimer: Claimer) -> None:
    claim(claimer, 0.0, answer(wait_s=5.0), took=0.2)
    assert claimer.look_at == pytest.approx(5.1)


def test_an_outage_is_no_travelling_time(claimer: Claimer) -> None:
    claim(claimer, 0.0, answer(wait_s=5.0), took=100.0)
    assert claimer.look_at == pytest.approx(104.0)
    assert claimer.server_us(100.0) == SERVER_US + 1_000_000
    assert claimer.claimed_us == SERVER_US


def test_a_worker_with_free_slots_asks_only_at_the_planned_look(claimer: Claimer) -> None:
    claim(claimer, 0.0, answer(wait_s=5.0, gave=3))
    assert request(claimer, 5.09) is None
    assert request(claimer, 5.1) is not None


def test_a_claim_given_all_it_wanted_is_followed_when_slots_are_free(claimer: Claimer) -> None:
    claim(claimer, 0.0, answer(wait_s=None, gave=2, seat=0), free=2)
    assert claimer.hungry
    assert request(claimer, 0.3, free=0) is None
    asked = request(claimer, 0.3, free=1)
    assert asked is not None
    assert asked.want == 1


def test_no_more_than_a_batch_is_asked_for(claimer: Claimer) -> None:
    assert claim(claimer, 0.0, answer(), free=1000).want == 100


def test_a_full_worker_hands_its_seat_on_at_the_moment_it_would_look(claimer: Claimer) -> None:
    claim(claimer, 0.0, answer(wait_s=5.0, gave=3))
    assert request(claimer, 1.0, free=0) is None
    asked = claim(claimer, 6.0, answer(wait_s=None, seat=0), free=0)
    assert asked.want == 0
    assert request(claimer, 100.0, free=0) is None
    after = request(claimer, 100.0, free=4)
    assert after is not None
    assert after.want == 4


def test_a_full_worker_without_a_seat_has_nothing_to_hand_on() -> None:
    claimer = Claimer(lease_ms=30_000, now=0.0)
    assert request(claimer, 0.0, free=0) is None
    assert claimer.look_at == math.inf
    assert request(claimer, 1.0, free=1) is not None


def test_a_notice_makes_the_look_earlier_never_later(claimer: Claimer) -> None:
    claim(claimer, 0.0, answer(wait_s=5.0))
    claimer.notice(Notice("due", 2_000_000), now=1.0)
    assert claimer.look_at == pytest.approx(3.0)
    claimer.notice(Notice("due", 60_000_000), now=1.0)
    assert claimer.look_at == pytest.approx(3.0)


def test_a_notice_that_was_held_up_counts_from_its_publishing(claimer: Claimer) -> None:
    claim(claimer, 0.0, answer(wait_s=9.0), took=0.0)
    claimer.notice(Notice("due", 5_000_000, at_us=SERVER_US + 1_000_000), now=4.0)
    assert claimer.look_at == pytest.approx(6.0)
    claimer.notice(Notice("due", 3_000_000, at_us=SERVER_US + 1_000_000), now=5.0)
    assert claimer.look_at == pytest.approx(4.0), "overdue: at once"


def test_a_notice_of_a_clock_that_was_stepped_makes_nobody_look_too_late(claimer: Claimer) -> None:
    claim(claimer, 0.0, answer(wait_s=9.0), took=0.0)
    claimer.notice(Notice("due", 500_000, at_us=SERVER_US + 3_600_000_000), now=1.0)
    assert claimer.look_at == pytest.approx(1.5)
    claimer.notice(Notice("due", 400_000, at_us=SERVER_US - 3_600_000_000), now=1.0)
    assert claimer.look_at <= 1.4


def test_a_notice_during_a_claim_is_applied_to_its_answer(claimer: Claimer) -> None:
    assert request(claimer, 0.0) is not None
    claimer.notice(Notice("due", 500_000), now=0.1)
    claimer.answered(answer(wait_s=5.0), sent=0.0, now=0.2)
    assert claimer.look_at == pytest.approx(0.6)


def test_a_notice_during_a_claim_does_not_outlive_the_next_one(claimer: Claimer) -> None:
    assert request(claimer, 0.0) is not None
    claimer.notice(Notice("due", 500_000), now=0.1)
    claimer.answered(answer(wait_s=5.0), sent=0.0, now=0.2)
    claim(claimer, 0.7, answer(wait_s=5.0))
    assert claimer.look_at == pytest.approx(5.8)


def test_connected_means_look_now_and_resume_a_little_later(claimer: Claimer) -> None:
    claim(claimer, 0.0, answer(wait_s=5.0))
    claimer.notice(Notice("resume"), now=1.0, random=0.5)
    assert claimer.look_at == pytest.approx(1.05)
    claimer.notice(Notice("connected"), now=1.0)
    assert claimer.look_at == pytest.approx(1.0)


def test_renew_is_not_about_claiming(claimer: Claimer) -> None:
    claim(claimer, 0.0, answer(wait_s=5.0))
    claimer.notice(Notice("renew"), now=1.0)
    assert claimer.look_at == pytest.approx(5.1)


def test_a_deaf_worker_looks_each_second(claimer: Claimer) -> None:
    claim(claimer, 0.0, answer(wait_s=9.0, deaf=True))
    assert claimer.look_at == pytest.approx(1.2)


def test_a_paused_queue_is_looked_at_when_it_says(claimer: Claimer) -> None:
    claim(claimer, 0.0, answer(wait_s=10.0, paused=True))
    assert claimer.paused
    assert claimer.look_at == pytest.approx(10.1)


def test_an_empty_answer_with_a_tiny_wait_does_not_spin(claimer: Claimer) -> None:
    claim(claimer, 0.0, answer(wait_s=0.0), took=0.2)
    assert claimer.look_at > 0.2


def test_after_an_error_it_looks_again_when_told(claimer: Claimer) -> None:
    assert request(claimer, 0.0) is not None
    claimer.failed(now=1.0, again_in=0.5)
    assert request(claimer, 1.4) is None
    assert request(claimer, 1.5) is not None


# ---- the server's clock


def test_the_expected_time_follows_the_monotonic_clock(claimer: Claimer) -> None:
    claim(claimer, 0.0, answer(wait_s=1.0), took=0.2)
    asked = request(claimer, 10.1)
    assert asked is not None
    assert asked.expected_now_us == SERVER_US + 10_000_000


def test_what_is_left_to_pull_in_is_pulled_in_soon(claimer: Claimer) -> None:
    claim(claimer, 0.0, answer(wait_s=5.0, clamp_next=100))
    assert claimer.look_at < 0.3
    asked = request(claimer, 0.3)
    assert asked is not None
    assert asked.clamp_from == 100


def test_steady_needs_an_unbroken_connection_of_three_seconds(claimer: Claimer) -> None:
    assert claimer.steady_in_ms(10.0, None) == 3000
    assert claimer.steady_in_ms(10.0, 9.0) == 2000
    assert claimer.steady_in_ms(12.0, 9.0) == 0


def test_a_short_lease_is_steady_sooner() -> None:
    assert Claimer(lease_ms=500, now=0.0).steady_in_ms(10.0, None) == 500


def test_after_a_clock_step_it_is_not_steady_for_a_while(claimer: Claimer) -> None:
    claim(claimer, 0.0, answer())
    claim(claimer, 6.0, answer(stepped=True, now_us=SERVER_US + 3_600_000_000))
    assert claimer.stepped_by_us == pytest.approx(3_594_000_000, abs=1_000_000)
    assert claimer.steady_in_ms(7.2, -100.0) == 2000
    assert claimer.steady_in_ms(9.3, -100.0) == 0


def test_it_says_when_it_last_saw_that_no_lease_had_expired(claimer: Claimer) -> None:
    assert claim(claimer, 0.0, answer(clear=True)).clear_ms == -1
    assert claim(claimer, 6.0, answer(now_us=SERVER_US + 6_000_000)).clear_ms == SERVER_US // 1000
    # The clock is back at a time before that: what was seen then tells nothing.
    assert claim(claimer, 12.0, answer(now_us=SERVER_US - 60_000_000)).clear_ms == SERVER_US // 1000
    assert claim(claimer, 18.0, answer()).clear_ms == -1


def test_clock_steps_hold_it_back_thirty_seconds_in_a_row_at_most(claimer: Claimer) -> None:
    claim(claimer, 0.0, answer(wait_s=1.0))
    held = [0.0]
    for second in range(2, 60, 2):
        asked = request(claimer, float(second))
        assert asked is not None
        if asked.expected_now_us is None:  # with an expectation the server would see a step again
            assert asked.steady_in_ms == 0
            held.append(float(second))
            claimer.answered(answer(wait_s=1.0), sent=second, now=second + 0.1)
        else:
            claimer.answered(answer(wait_s=1.0, stepped=True), sent=second, now=second + 0.1)
    assert len(held) > 1
    assert max(b - a for a, b in itertools.pairwise(held)) <= 34


def test_seat_and_others_are_those_of_the_last_answer(claimer: Claimer) -> None:
    claim(claimer, 0.0, answer(seat=2, others=3, wait_s=1.0))
    assert (claimer.seat, claimer.others) == (2, 3)
    claim(claimer, 2.0, answer(seat=0, others=0))
    assert (claimer.seat, claimer.others) == (0, 0)
