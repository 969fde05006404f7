"""Lost replies: each repeatable call gives the same answer again and has no second effect (promise 8)."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from aiodq._core.due import NOW, Due
from aiodq._core.lifecycle import TRANSITIONS
from aiodq._core.settlement import Acked, Buried, Deferred, Released, Settlement
from aiodq._core.store import BATCH, ClaimRequest, Entry
from aiodq._redis.scripts import Scripting
from tests.fault.lab import REPEATED, Lab, open_lab, rounds, settled
from tests.fault.proxy import Loss, Way
from tests.servers import ServerProcess
from tests.shards import HOUR_MS, LEASE_MS, Hand


def test_all_repeatable_scripts_are_tried() -> None:
    assert set(REPEATED) == {transition.name for transition in TRANSITIONS if transition.repeats}


@pytest.mark.parametrize("how", ["cut", "silence"])
@pytest.mark.parametrize("name", sorted(REPEATED))
@pytest.mark.leaves_keys("the seeds stay")
async def test_a_lost_reply_changes_neither_answer_nor_effect(
    server: ServerProcess, queue_name: str, name: str, how: Literal["cut", "silence"]
) -> None:
    """B86: the server carried the call out, and the caller does not know. One round for each script and way
    (times AIODQ_FAULT_ROUNDS); no job waits for a lease."""
    for n in range(rounds(1)):
        async with open_lab(server, f"{queue_name}-{n}") as lab:
            await _lose_one(lab, name, how)
        server.flush()


async def _lose_one(lab: Lab, name: str, how: Literal["cut", "silence"]) -> None:
    move, expected = REPEATED[name]
    seeds = await lab.seed()
    loss = lab.proxy.lose_reply(name, how=how, hold=True)
    calling = asyncio.ensure_future(move(lab, seeds))
    await asyncio.wait_for(loss.happened.wait(), 5)
    effect = settled(await lab.state())
    assert effect != settled(seeds.state)
    lab.proxy.go_on()
    assert await calling == expected
    assert settled(await lab.state()) == effect
    if name == "claim":
        assert min((await lab.state()).processing.values()) > await lab.now_ms() + LEASE_MS / 2


@pytest.mark.leaves_keys("the seeds stay")
async def test_a_lost_enqueue_is_not_written_again_after_the_job_has_run(lab: Lab) -> None:
    hand = await lab.listener("w")
    loss = lab.proxy.lose_reply("enqueue", hold=True)
    enqueuing = asyncio.ensure_future(lab.store.enqueue([Entry("a", b"", NOW)]))
    await loss.happened.wait()
    past_the_proxy = open_lab(lab.server, lab.keys.base.split("{")[1].split("}")[0], check=False)
    async with past_the_proxy as other:
        runner = other.hand("runner")
        [lease] = await runner.take()
        assert await runner.settle(Acked("a", lease.token), last=True) == [True]
    lab.proxy.go_on()
    [placed] = await enqueuing
    assert placed.created
    assert (await lab.state()).payload == {}
    assert (await hand.claim(1)).leases == []


@pytest.mark.parametrize("lost", range(1, 7))
async def test_batches_side_by_side_are_written_once_whichever_reply_is_lost(lab: Lab, lost: int) -> None:
    """With the lost reply go all that are on their way. What arrived runs and ends before the repeats do."""
    ids = [f"j{n}" for n in range(6 * BATCH)]
    armed = asyncio.Event()

    async def lose() -> None:
        losses.append(lab.proxy.lose_reply("enqueue", hold=True))
        armed.set()

    losses: list[Loss] = []
    for _ in range(lost - 1):
        lab.proxy.before("enqueue", _nothing)
    lab.proxy.before("enqueue", lose)
    enqueuing = asyncio.ensure_future(lab.store.enqueue([Entry(job_id, b"x" * 50, NOW) for job_id in ids]))
    await asyncio.wait_for(armed.wait(), 5)
    await asyncio.wait_for(losses[0].happened.wait(), 5)
    past_the_proxy = open_lab(lab.server, lab.keys.base.split("{")[1].split("}")[0], check=False)
    async with past_the_proxy as other:
        runner = other.hand("runner")
        ran = await _run_all(runner)
        assert len(ran) >= lost * BATCH
        lab.proxy.go_on()
        placed = await enqueuing
        assert all(answer.created for answer in placed)
        ran += await _run_all(runner)
    assert sorted(ran) == sorted(ids)


async def _nothing() -> None:
    """For replies that pass."""


async def _run_all(hand: Hand) -> list[str]:
    """Takes and ends all jobs that are due."""
    ran: list[str] = []
    while leases := await hand.take(BATCH):
        assert all(await hand.settle(*(Acked(lease.job_id, lease.token) for lease in leases)))
        ran += [lease.job_id for lease in leases]
    return ran


async def test_each_part_of_a_turn_answers_for_itself(lab: Lab) -> None:
    """The whole pipeline is lost at any of its replies; no job waits for a lease afterwards."""
    hand = await lab.listener("w")
    for lost in ("ack", "retry", "release", "bury", "claim"):
        ids = ["ack", "retry", "release", "bury"]
        await lab.store.enqueue([Entry(name, b"", NOW) for name in ids])
        leases = {lease.job_id: lease for lease in await hand.take(4)}
        assert sorted(leases) == sorted(ids)
        await lab.store.enqueue([Entry("next", b"", NOW)])
        lab.proxy.lose_reply(lost)
        answer = await hand.turn(
            Acked("ack", leases["ack"].token),
            Deferred("retry", leases["retry"].token, Due(HOUR_MS), b""),
            Released("release", leases["release"].token),
            Buried("bury", leases["bury"].token, b""),
            claim=ClaimRequest(5, LEASE_MS),
        )
        assert answer.settled == [True] * 4
        assert answer.claim is not None
        given = {lease.job_id: lease for lease in answer.claim.leases}
        assert set(given) == {"next", "release"}, lost
        state = await lab.state()
        assert (set(state.schedule), set(state.processing), set(state.dead)) == (
            {"retry"},
            {"next", "release"},
            {"bury"},
        )
        await hand.settle(*(Acked(lease.job_id, lease.token) for lease in given.values()))
        await lab.store.cancel(["retry"])
        await lab.store.purge(["bury"])


@pytest.mark.parametrize("way", ["up", "down"])
@pytest.mark.parametrize("outcome", ["retry", "bury"])
async def test_a_cut_at_any_byte_leaves_the_job_in_one_place(
    lab: Lab, outcome: Literal["retry", "bury"], way: Way
) -> None:
    """B79. Every byte of the answer; of the command every 23rd, or all with AIODQ_FAULT_ROUNDS=23."""
    hand = await lab.listener("w")
    bytes_of: dict[str, int] = {}

    async def once(cut_at: int | None) -> None:
        await lab.store.enqueue([Entry("a", b"", NOW)])
        [lease] = await hand.take()
        write: Settlement = (
            Buried("a", lease.token, b"why")
            if outcome == "bury"
            else Deferred("a", lease.token, Due(HOUR_MS), b"why")
        )
        before = lab.proxy.stats.bytes.copy()
        if cut_at is None:
            assert await hand.settle(write) == [True]
            bytes_of.update({w: lab.proxy.stats.bytes[w] - before[w] for w in ("up", "down")})
        else:
            cut = lab.proxy.cut_after(way, cut_at, hold=True)
            settling = asyncio.ensure_future(hand.settle(write))
            await asyncio.wait_for(cut.happened.wait(), 5)
            assert not (state := await lab.state()).faults(), cut_at
            assert len(state.processing) + len(state.schedule) + len(state.dead) == 1, cut_at
            lab.proxy.go_on()
            assert await settling == [True]
        assert set((await lab.state()).dead if outcome == "bury" else (await lab.state()).schedule) == {"a"}
        if outcome == "bury":
            await lab.store.purge(["a"])
        else:
            await lab.store.cancel(["a"])

    await once(None)
    step = 1 if way == "down" else max(1, 23 // rounds(1))
    for cut_at in [*range(1, bytes_of[way], step), bytes_of[way]]:
        await once(cut_at)


@pytest.mark.leaves_keys("the seeds stay")
async def test_scripts_forgotten_in_the_middle_of_a_pipeline_are_deployed_again(
    server: ServerProcess, queue_name: str, scripting: Scripting
) -> None:
    """B112. The parts before were carried out, those after were refused: only these are sent again."""
    async with open_lab(server, queue_name, scripting=scripting) as lab:
        hand = await lab.listener("w")
        for forgotten_at in ("ack", "retry", "release", "bury", "claim"):
            await lab.store.enqueue([Entry(name, b"", NOW) for name in ("a", "b", "c", "d")])
            leases = {lease.job_id: lease.token for lease in await hand.take(4)}
            await lab.store.enqueue([Entry("next", b"", NOW)])
            await lab.deploy_scripts()
            before = lab.proxy.stats.commands.copy()
            lab.proxy.before(forgotten_at, lab.forget_scripts)
            answer = await hand.turn(
                Acked("a", leases["a"]),
                Deferred("b", leases["b"], Due(HOUR_MS), b""),
                Released("c", leases["c"]),
                Buried("d", leases["d"], b""),
                claim=ClaimRequest(2, LEASE_MS),
            )
            assert answer.settled == [True] * 4
            assert answer.claim is not None
            given = {lease.job_id: lease.token for lease in answer.claim.leases}
            assert "next" in given
            assert not (state := await lab.state()).faults()
            assert set(state.processing) == set(given)
            order = ["ack", "retry", "release", "bury", "claim"]
            again = {name: lab.proxy.stats.commands[name] - before[name] - 1 for name in order}
            expected = {name: int(n >= order.index(forgotten_at)) for n, name in enumerate(order)}
            assert again == expected, forgotten_at
            await hand.settle(*(Acked(job_id, token) for job_id, token in given.items()))
            await lab.store.cancel(["b", "c"])
            await lab.store.purge(["d"])


@pytest.mark.leaves_keys("the seeds stay")
@pytest.mark.parametrize("name", sorted(REPEATED))
async def test_each_script_is_deployed_when_the_server_does_not_know_it(
    server: ServerProcess, queue_name: str, scripting: Scripting, name: str
) -> None:
    async with open_lab(server, queue_name, scripting=scripting) as lab:
        move, expected = REPEATED[name]
        seeds = await lab.seed()
        await lab.forget_scripts()
        assert await move(lab, seeds) == expected
