"""The history checker catches scripts with a safeguard taken out, and finds nothing with all of them in."""

from __future__ import annotations

import asyncio
import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from aiodq._core.due import Due
from aiodq._core.errors import ScriptError
from aiodq._core.lease import Lease
from aiodq._core.settlement import Acked, Buried, Deferred, Released, Settlement
from aiodq._core.store import ClaimRequest, Entry
from tests.fault.events import Ended, Fault, Recorder, Started, read
from tests.fault.history import Verdict, check
from tests.fault.lab import Lab, open_lab
from tests.fault.mutations import MUTATIONS, broken
from tests.fault.recording import recording_producer, recording_workers
from tests.servers import ServerProcess
from tests.shards import Hand

pytestmark = pytest.mark.leaves_keys("broken scripts leave what they leave")

LEASE_MS = 150
JOBS = 40
STORM_S = 4.0


class Storm:
    """Three workers over one shard, who freeze beyond their leases at random, and a producer behind a line of
    its own who loses replies while they work on."""

    def __init__(self, lab: Lab, producers: Lab, recorder: Recorder, seed: int) -> None:
        self.lab = lab
        self.producers = producers
        self.recorder = recorder
        self.dice = random.Random(seed)
        self.until = 0.0
        self.overtaken = False
        self.refused = 0
        """Calls that a broken script could not even answer."""

    async def run(self) -> None:
        hands = [await self.lab.listener(name) for name in ("one", "two", "three")]
        self.until = asyncio.get_running_loop().time() + STORM_S
        writing = asyncio.create_task(self._write())
        try:
            async with asyncio.timeout(STORM_S), asyncio.TaskGroup() as group:
                for hand in hands:
                    group.create_task(self._work(hand, writing))
        except TimeoutError:
            pass  # a broken script never lets them come to rest
        await asyncio.gather(writing)

    async def _write(self) -> None:
        dice = random.Random(self.dice.random())
        for at in range(0, JOBS, 4):
            entries = [Entry(f"j{at + n}", b"", Due(dice.randrange(200))) for n in range(4)]
            if at in (8, 24):
                loss = self.producers.proxy.lose_reply("enqueue", how="cut", hold=True)
                calling = asyncio.ensure_future(self.producers.store.enqueue(entries))
                await loss.happened.wait()
                self._note("cut")
                await asyncio.sleep(0.5)  # the jobs are run while their producer waits for its answer
                self.producers.proxy.go_on()
                await calling
            else:
                await self.producers.store.enqueue(entries)
            await asyncio.sleep(0.01)

    async def _work(self, hand: Hand, writing: asyncio.Task[None]) -> None:
        loop = asyncio.get_running_loop()
        # Not by the cancellation alone: before Python 3.12 `wait_for`, which the client uses, may swallow it.
        while loop.time() < self.until and not (writing.done() and await self._at_rest()):
            try:
                answer = await hand.ask(ClaimRequest(3, LEASE_MS))
            except ScriptError:
                self.refused += 1
                continue
            for lease in answer.leases:
                self.recorder.write(Started(self.recorder.now_ms(), hand.id, lease.job_id, lease.fence))
            since_ms, roll = self.recorder.now_ms(), self.dice.random()
            frozen = bool(answer.leases) and roll < 0.3
            if answer.leases and not self.overtaken:
                # Chance alone may leave every frozen worker its jobs: one at least is to come too late.
                frozen, self.overtaken = False, True
                self.overtaken = await self._until_taken_over(answer.leases[0])
            else:
                await asyncio.sleep((1.2 if frozen else self.dice.random() * 0.6) * LEASE_MS / 1000)
            if frozen and roll < 0.1:
                self._note("stop", hand.id, since_ms)
                continue  # and never comes back to these
            for lease in answer.leases:
                self.recorder.write(Ended(self.recorder.now_ms(), hand.id, lease.job_id, lease.fence, True))
            await hand.settle(*map(self._settlement, answer.leases))
            if self.recorder.now_ms() - since_ms > LEASE_MS * 0.9:  # frozen, or a slow machine
                self._note("stop", hand.id, since_ms)

    async def _until_taken_over(self, lease: Lease) -> bool:
        """Whether another worker holds the job now; false when it is over, or the storm is."""
        loop = asyncio.get_running_loop()
        while loop.time() < self.until:
            token = (await self.lab.state()).lease.get(lease.job_id)
            if token != lease.token:
                return token is not None
            await asyncio.sleep(0.005)
        return False

    def _settlement(self, lease: Lease) -> Settlement:
        roll = self.dice.random()
        if roll < 0.15:
            return Deferred(lease.job_id, lease.token, Due(self.dice.randrange(50)), b"")
        if roll < 0.2:
            return Released(lease.job_id, lease.token)
        if roll < 0.25:
            return Buried(lease.job_id, lease.token, b"")
        return Acked(lease.job_id, lease.token)

    async def _at_rest(self) -> bool:
        state = await self.lab.state()
        return not state.schedule and not state.processing

    def _note(self, kind: str, worker: str = "", since_ms: float | None = None) -> None:
        now_ms = self.recorder.now_ms()
        self.recorder.write(Fault(now_ms if since_ms is None else since_ms, kind, worker, now_ms))


async def storm(
    server: ServerProcess, queue: str, folder: Path, *, mutation: str | None, seed: int = 1
) -> tuple[Verdict, int]:
    """What the checker says of a storm, and how many calls were refused."""
    recorder = Recorder(folder, "storm")
    with ExitStack() as stack:
        stack.callback(recorder.close)
        stack.enter_context(recording_workers(recorder, by_process=False))
        stack.enter_context(recording_producer(recorder))
        if mutation is not None:
            stack.enter_context(broken(MUTATIONS[mutation]))
        async with (
            open_lab(server, queue, check=False) as lab,
            open_lab(server, queue, check=False) as producers,
        ):
            storming = Storm(lab, producers, recorder, seed)
            await storming.run()
            final = await lab.state()
    return check(read(folder), final, late_ms=60_000), storming.refused


@pytest.mark.parametrize("seed", [1, 2])
async def test_whole_scripts_keep_every_promise(
    server: ServerProcess, queue_name: str, tmp_path: Path, seed: int
) -> None:
    verdict, refused = await storm(server, queue_name, tmp_path, mutation=None, seed=seed)
    assert verdict.broken() == {}, str(verdict)
    assert refused == 0
    assert len(verdict.ok) == JOBS
    assert verdict.faults["stop"]
    assert verdict.faults["cut"]


CAUGHT_AS = {
    "no fence": {"stale", "double_acked"},
    "claim in two steps": {"overlapping", "double_acked", "misplaced", "unexplained"},
    "claim without leaving the schedule": {"misplaced", "overlapping"},
    "pop, then push": {"lost", "misplaced"},
    "no recovery": {"stuck"},
    "no due time": {"early"},
    "no repeat record": {"double_acked", "lost", "unexpected"},
    "payload left behind": {"misplaced"},
    "same fence": {"overlapping"},
}


@pytest.mark.parametrize("mutation", sorted(MUTATIONS))
async def test_a_broken_script_is_caught(
    valkey: ServerProcess, queue_name: str, tmp_path: Path, mutation: str
) -> None:
    verdict, _ = await storm(valkey, queue_name, tmp_path, mutation=mutation)
    assert CAUGHT_AS[mutation] & set(verdict.broken()), str(verdict)
