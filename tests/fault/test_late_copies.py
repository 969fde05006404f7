"""Late copies: what a given-up connection had sent arrives after all, when nobody waits for it any more."""

from __future__ import annotations

from aiodq._core.due import NOW, Due
from aiodq._core.settlement import Acked, Deferred
from aiodq._core.store import Entry
from tests.fault.lab import Lab
from tests.shards import HOUR_MS


async def test_a_late_cancel_leaves_the_next_job_of_that_id_alone(lab: Lab) -> None:
    """Cancelled, its answer lost in a black hole, cancelled again, enqueued again; then the first arrives."""
    await lab.store.enqueue([Entry("a", b"", Due(HOUR_MS)), Entry("b", b"", Due(HOUR_MS))])
    release = lab.proxy.hold_now()
    assert await lab.store.cancel(["a"]) == ["scheduled"]
    assert await lab.store.cancel(["b"]) == ["scheduled"]
    await lab.store.enqueue([Entry("a", b"", Due(HOUR_MS))])
    release()
    await lab.proxy.answered("cancel", 3)
    assert set((await lab.state()).schedule) == {"a"}
    await lab.store.cancel(["a"])


async def test_a_late_enqueue_writes_no_job_that_has_run(lab: Lab) -> None:
    hand = await lab.listener("w")
    await lab.store.enqueue([Entry("warm", b"", Due(HOUR_MS))])
    release = lab.proxy.hold_now()
    await lab.store.enqueue([Entry("a", b"", NOW)])
    await lab.store.enqueue([Entry("b", b"", Due(HOUR_MS))])
    [lease] = await hand.take()
    await hand.settle(Acked("a", lease.token))
    release()
    await lab.proxy.answered("enqueue", 4)
    assert set((await lab.state()).payload) == {"warm", "b"}
    await lab.store.cancel(["warm", "b"])


async def test_a_late_claim_takes_nothing(lab: Lab) -> None:
    """The worker knows nothing of what it would hold: those jobs would wait for a whole lease."""
    hand = await lab.listener("w")
    await hand.take()
    release = lab.proxy.hold_now()
    assert await hand.take(5) == []
    await lab.store.enqueue([Entry("a", b"", NOW)])
    release()
    await lab.proxy.answered("claim", 3)
    assert (await lab.state()).processing == {}
    [lease] = await hand.take()
    assert lease.job_id == "a"
    await hand.settle(Acked("a", lease.token))


async def test_late_settlements_are_refused(lab: Lab) -> None:
    """The job was retried, and is being run again by another when the first retry arrives once more."""
    hand, other = await lab.listener("w"), await lab.listener("other")
    await lab.store.enqueue([Entry("a", b"", NOW)])
    [lease] = await hand.take()
    release = lab.proxy.hold_now()
    assert await hand.settle(Deferred("a", lease.token, NOW, b"one")) == [True]
    [second] = await other.take()
    release()
    await lab.proxy.answered("retry", 2)
    assert (await lab.state()).lease == {"a": second.token}
    assert await other.settle(Acked("a", second.token)) == [True]
