"""When one worker looks at one shard, and what it asks for: pure state, told everything, deciding only this.

A worker claims when the planned look has come, when a notice makes it come earlier, or when its last claim
was given as many jobs as it wanted and slots are free again; never otherwise, so that a lone job costs one
claim and one ack. All times are seconds of the caller's monotonic clock; the server's clock comes in as
differences.
"""

from __future__ import annotations

import math
from typing import Final

from aiodq._core.store import (
    BATCH,
    DEAF_POLL_MS,
    FIRST_SEAT_CAP_MS,
    STEADY_MS,
    ClaimAnswer,
    ClaimRequest,
    Notice,
)

HOLD_BACK_S: Final = 30.0
"""The longest that clock steps can keep a worker from taking expired leases."""

CLAMP_AGAIN_S: Final = 0.05
HELD_UP_US: Final = 50_000
"""What a worker makes of the server's clock is off by less, in the ordinary course."""

RESUME_SPREAD_S: Final = 0.1
SHORTEST_WAIT_S: Final = 0.0005

LONGEST_HALF_S: Final = 1.0
"""An answer was made at most this long before it came, however long the claim was repeated before: what an
outage takes is no travelling time.
"""


class Claimer:
    """One worker's claiming state of one shard; `shards`: of so many that the worker serves.

    Attributes:
        look_at: the planned look; infinite while only free slots can bring the next claim.
        hungry: the last claim was given as many as it wanted, so there may be more: claim when slots are
            free.
        seat: 1 or 2 when this worker answers for the head of the schedule.
        others: how many other workers hold leases here, as last heard.
        last_claim: when the last claim was answered.
        claimed_us: the server's time of that answer, Unix µs.
    """

    def __init__(self, *, lease_ms: int, now: float, shards: int = 1) -> None:
        self.look_at = now
        self.hungry = False
        self.paused = False
        self.seat = 0
        self.others = 0
        self.last_claim: float | None = None
        self.claimed_us = 0
        self.stepped_by_us = 0
        self._lease_ms = lease_ms
        self._cap_ms = FIRST_SEAT_CAP_MS * shards
        self._steady_s = min(STEADY_MS, lease_ms) / 1000
        self._registered = False
        self._in_flight = False
        self._noticed_at = math.inf
        self._clamp_next = -1
        self._clear_us: int | None = None
        self._server_us: int | None = None
        self._server_at = now
        self._stepped_at: float | None = None
        self._held_back_since: float | None = None

    def wants(self, now: float) -> bool:
        """There may be something to claim now."""
        return self.hungry or self.look_at <= now

    def request(
        self, *, free: int, now: float, unbroken_since: float | None, random: float = 0.5
    ) -> ClaimRequest | None:
        """The claim to send now with that many free slots, if any; `answered` or `failed` must follow."""
        look = self.look_at <= now
        if not look and not (self.hungry and free > 0):
            return None
        want = min(free, BATCH)
        if want == 0 and not self._registered:
            # No seat to give up: whoever is waiting was told when this worker became full.
            self.hungry, self.look_at = True, math.inf
            return None
        held_back_long = self._held_back_since is not None and now - self._held_back_since >= HOLD_BACK_S
        self._in_flight, self._noticed_at = True, math.inf
        return ClaimRequest(
            want=want,
            lease_ms=self._lease_ms,
            # Without an expectation the server sees no step, so that a clock that keeps jumping cannot hold
            # this worker back for ever.
            expected_now_us=None if held_back_long or self._server_us is None else self.server_us(now),
            steady_in_ms=self.steady_in_ms(now, unbroken_since),
            far=1.0 + random,
            clamp_from=self._clamp_next,
            clear_ms=-1 if held_back_long or self._clear_us is None else self._clear_us // 1000,
            cap_ms=self._cap_ms,
        )

    def answered(self, answer: ClaimAnswer, *, sent: float, now: float) -> None:
        """Takes in what a claim said; `sent` and `now` are the ends of its round trip."""
        middle = max((sent + now) / 2, now - LONGEST_HALF_S)
        self._in_flight, self.last_claim, self.claimed_us = False, now, answer.now_us
        self.paused, self.seat, self.others = answer.paused, answer.seat, answer.others
        self._clamp_next = answer.clamp_next
        if answer.clear:
            self._clear_us = answer.now_us
        elif self._clear_us is not None and self._clear_us > answer.now_us:
            self._clear_us = None  # the clock went back: what is past tells nothing
        self._note_clock(answer, middle, now)
        # A claim that got what it wanted, or wanted nothing, has left the row of those who wait.
        self.hungry = answer.wait_us is None
        self._registered = answer.wait_us is not None and not (answer.deaf or answer.paused)
        self.look_at = math.inf
        if answer.wait_us is not None:
            # A claim that came a little early finds nothing and a tiny wait: a floor keeps it from spinning.
            self.look_at = max(middle + answer.wait_us / 1e6, now + SHORTEST_WAIT_S)
            self.look_at = min(self.look_at, self._noticed_at)
            if answer.deaf:
                self.look_at = min(self.look_at, now + DEAF_POLL_MS / 1000)
            if answer.clamp_next >= 0:
                self.look_at = min(self.look_at, now + CLAMP_AGAIN_S)
        self._noticed_at = math.inf

    def failed(self, *, now: float, again_in: float) -> None:
        """A claim went without an answer; the next is made after that time."""
        self._in_flight = False
        self.look_at = now + again_in
        self.hungry = False
        self.seat = 0

    def notice(self, notice: Notice, *, now: float, random: float = 0.0) -> None:
        """A hint from the server: at most makes the next look earlier."""
        if notice.kind == "due":
            self.look_by(now + (notice.wait_us - self._held_up_us(notice, now)) / 1e6)
        elif notice.kind == "connected":
            self.look_by(now)
        elif notice.kind == "resume":
            self.look_by(now + random * RESUME_SPREAD_S)  # all workers hear it: not all at once

    def _held_up_us(self, notice: Notice, now: float) -> int:
        """How long a notice was on its way, if noticeably: a network that swallows packets for a while may
        deliver them in the end."""
        if not notice.at_us or self._server_us is None:
            return 0
        held_up_us = self.server_us(now) - notice.at_us
        return held_up_us if held_up_us > HELD_UP_US else 0

    def look_by(self, when: float) -> None:
        """Looks at that time at the latest. While a claim is in flight, its answer does not override it."""
        if self._in_flight:
            self._noticed_at = min(self._noticed_at, when)
        self.look_at = min(self.look_at, when)

    def server_us(self, now: float) -> int:
        """The server's time as far as this worker can tell, Unix µs; 0 before the first answer."""
        if self._server_us is None:
            return 0
        return self._server_us + int((now - self._server_at) * 1e6)

    def steady_in_ms(self, now: float, unbroken_since: float | None) -> int:
        """How long until this worker may take expired leases and accuse others, ms; 0: it may."""
        if unbroken_since is None:
            return math.ceil(self._steady_s * 1000)
        ready = unbroken_since + self._steady_s
        if self._stepped_at is not None and self._held_back_since is not None:
            after_step = self._stepped_at + self._steady_s
            if after_step <= now:
                self._held_back_since = None
            elif now - self._held_back_since < HOLD_BACK_S:
                ready = max(ready, after_step)
        return max(0, math.ceil((ready - now) * 1000))

    def _note_clock(self, answer: ClaimAnswer, middle: float, now: float) -> None:
        # The expectation was made when the call was first sent: one that waited out an outage shows no step.
        waited = now - middle >= LONGEST_HALF_S
        expected_us = self.server_us(now if waited else middle)
        self.stepped_by_us = max(0, answer.now_us - expected_us) if answer.stepped else 0
        self._server_us, self._server_at = answer.now_us, middle
        if answer.stepped:
            self._stepped_at = now
            if self._held_back_since is None:
                self._held_back_since = now
        elif self._held_back_since is not None and now - self._held_back_since >= HOLD_BACK_S:
            self._held_back_since = None
