"""Large jobs over a slow line: slowness is not silence."""

from __future__ import annotations

from aiodq._core.due import NOW
from aiodq._core.settlement import Acked
from aiodq._core.store import ClaimRequest, Entry
from aiodq._redis.link import SLOWEST_BYTES_S
from tests.fault.lab import open_lab
from tests.servers import ServerProcess

REPLY_TIMEOUT_S = 0.3


async def test_a_large_job_passes_a_line_that_needs_longer_than_a_reply_is_waited_for(
    valkey: ServerProcess, queue_name: str
) -> None:
    body = b"x" * SLOWEST_BYTES_S
    async with open_lab(valkey, queue_name, reply_timeout_s=REPLY_TIMEOUT_S) as lab:
        await lab.deploy_scripts()
        lab.proxy.bytes_per_s = SLOWEST_BYTES_S * 1.5
        assert len(body) / lab.proxy.bytes_per_s > 2 * REPLY_TIMEOUT_S

        placed = await lab.store.enqueue([Entry("large", body, NOW)])
        slow = lab.hand("slow").store
        turn = await slow.turn([], ClaimRequest(want=1, lease_ms=30_000))

        assert placed[0].created
        assert turn.claim is not None
        assert [lease.payload for lease in turn.claim.leases] == [body]
        await slow.turn([Acked(lease.job_id, lease.token) for lease in turn.claim.leases], None, last=True)
        assert lab.proxy.stats.connections == 2  # a producer's and a worker's, neither given up on the way
