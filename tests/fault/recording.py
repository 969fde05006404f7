"""Writes down what the stores of this process do, whoever uses them: for real processes."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from aiodq._core.lease import Token, parse_token
from aiodq._core.settlement import Acked, Buried, Deferred, Settlement
from aiodq._core.store import ClaimRequest, Entry, Placed, TurnAnswer, Was
from aiodq._redis.store import RedisStore
from aiodq._redis.worker_store import RedisKeeperStore, RedisWorkerStore
from tests.fault.events import (
    Asked,
    Cancelled,
    Cancelling,
    Claimed,
    Ending,
    Enqueued,
    Recorder,
    Renewed,
    Settled,
    Settling,
)


def _ending(settlement: Settlement) -> Ending:
    match settlement:
        case Acked():
            return "ack"
        case Deferred():
            return "retry"
        case Buried():
            return "bury"
        case _:
            return "release"


@contextmanager
def recording_workers(recorder: Recorder, *, by_process: bool = True) -> Generator[None]:
    """Meanwhile every turn and every renewal in this process is written down, under the process's name, or
    else under the ids of the workers in it."""

    def name_of(token: Token) -> str:
        return recorder.name if by_process else token.worker

    turn, extend = RedisWorkerStore.turn, RedisKeeperStore.extend

    async def recorded_turn(
        self: RedisWorkerStore,
        settlements: Sequence[Settlement],
        claim: ClaimRequest | None,
        /,
        *,
        last: bool = False,
    ) -> TurnAnswer:
        sent_ms = recorder.now_ms()
        tokens = [parse_token(settlement.token) for settlement in settlements]
        if settlements:
            recorder.write(
                *(
                    Settling(sent_ms, name_of(token), s.job_id, token.fence, _ending(s))
                    for s, token in zip(settlements, tokens, strict=True)
                )
            )
        answer = await turn(self, settlements, claim, last=last)
        now_ms = recorder.now_ms()
        written = [
            Settled(now_ms, sent_ms, name_of(token), s.job_id, token.fence, _ending(s), accepted)
            for s, token, accepted in zip(settlements, tokens, answer.settled, strict=True)
        ]
        given = [
            Claimed(
                lease.fence / 1000,  # the fence is the server's time of this very claim, in microseconds
                name_of(token := parse_token(lease.token)),
                lease.job_id,
                lease.fence,
                lease.due_ms,
                token.lease_ms,
                lease.recovered,
            )
            for lease in (answer.claim.leases if answer.claim else ())
        ]
        if written or given:
            recorder.write(*written, *given)
        return answer

    async def recorded_extend(
        self: RedisKeeperStore, leases: Sequence[tuple[str, str]], /, *, lease_ms: int
    ) -> list[bool]:
        sent_ms = recorder.now_ms()
        answers = await extend(self, leases, lease_ms=lease_ms)
        now_ms = recorder.now_ms()
        tokens = [parse_token(token) for _, token in leases]
        if leases:
            recorder.write(
                *(
                    Renewed(now_ms, sent_ms, name_of(token), job_id, token.fence, lease_ms, accepted)
                    for (job_id, _), token, accepted in zip(leases, tokens, answers, strict=True)
                )
            )
        return answers

    RedisWorkerStore.turn = recorded_turn  # type: ignore[method-assign]
    RedisKeeperStore.extend = recorded_extend  # type: ignore[method-assign]
    try:
        yield
    finally:
        RedisWorkerStore.turn = turn  # type: ignore[method-assign]
        RedisKeeperStore.extend = extend  # type: ignore[method-assign]


@contextmanager
def recording_producer(recorder: Recorder) -> Generator[None]:
    """Meanwhile every job that this process writes or cancels is written down."""
    enqueue, cancel = RedisStore.enqueue, RedisStore.cancel

    async def recorded_enqueue(self: RedisStore, entries: Sequence[Entry], /) -> list[Placed]:
        recorder.write(*(Asked(recorder.now_ms(), entry.job_id) for entry in entries))
        answers = await enqueue(self, entries)
        now_ms = recorder.now_ms()
        recorder.write(
            *(
                Enqueued(now_ms, entry.job_id, placed.created, placed.due_ms)
                for entry, placed in zip(entries, answers, strict=True)
            )
        )
        return answers

    async def recorded_cancel(self: RedisStore, job_ids: Sequence[str], /) -> list[Was]:
        recorder.write(*(Cancelling(recorder.now_ms(), job_id) for job_id in job_ids))
        answers = await cancel(self, job_ids)
        now_ms = recorder.now_ms()
        gone = [job_id for job_id, was in zip(job_ids, answers, strict=True) if was == "scheduled"]
        if gone:
            recorder.write(*(Cancelled(now_ms, job_id) for job_id in gone))
        return answers

    RedisStore.enqueue = recorded_enqueue  # type: ignore[method-assign]
    RedisStore.cancel = recorded_cancel  # type: ignore[method-assign]
    try:
        yield
    finally:
        RedisStore.enqueue = enqueue  # type: ignore[method-assign]
        RedisStore.cancel = cancel  # type: ignore[method-assign]
