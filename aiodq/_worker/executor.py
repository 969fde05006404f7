"""Runs handlers, and decides how their jobs end; writes nothing.

The path of a job that ends well is kept short on purpose: no cancel scope, timer, log line or event for a job
that does not need one. A handler is a plain asyncio task, started eagerly where Python can (3.12), so that
one that never waits is done before the next begins.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

import msgspec

from aiodq._core import decision
from aiodq._core.decision import Facts, Verdict
from aiodq._core.directives import sole_directive
from aiodq._core.durations import to_instant
from aiodq._core.envelope import UnknownVersion, decode_envelope
from aiodq._core.errors import PayloadError
from aiodq._core.handler import Call, InThread
from aiodq._core.lease import Lease
from aiodq._core.limit import Permit
from aiodq._core.rate import is_admitted
from aiodq._core.settlement import Acked, Buried, Deferred, Released
from aiodq._core.tally import users_part
from aiodq._worker.admission import Admission
from aiodq._worker.events import JobRecovered, JobStarted, TaskUnknown
from aiodq._worker.isolation import SUSPECT_CRASHES, Isolation
from aiodq._worker.limits import Limits
from aiodq._worker.reporter import Reporter
from aiodq._worker.running import Run, current_run
from aiodq._worker.shard import STUCK_AFTER_S, Shard
from aiodq._worker.slots import Slots
from aiodq._worker.timeouts import Timeouts

log: Final = logging.getLogger("aiodq.worker")

PUT_OFF_MS: Final = 1000
"""How long a job waits that is still being stopped here when it is claimed again."""

SUSPECT_PUT_OFF_MS: Final = 10_000
"""How long a suspect waits for another worker when this one did not become empty for it."""

T = TypeVar("T")


class Executor:
    """Turns leases into runs, and ended runs into settlements, for all shards of one worker.

    Args:
        keep_margin_s: how long after its time limit a handler's lease is still renewed.
        freed: slots came free; told when the worker has more than one shard.

    `active`: handlers that have begun and not ended; `ends`: how many have ended so far.
    """

    def __init__(
        self,
        *,
        slots: Slots,
        reporter: Reporter,
        in_thread: InThread,
        loop: asyncio.AbstractEventLoop,
        keep_margin_s: float,
        freed: Callable[[], None],
    ) -> None:
        self.active = 0
        self.ends = 0
        self.shards: list[Shard] = []
        self.timeouts = Timeouts(self.runs, loop)
        self._slots = slots
        self._reporter = reporter
        self._in_thread = in_thread
        self._loop = loop
        self._keep_margin_s = keep_margin_s
        self._freed = freed
        self._named: set[str] = set()
        self._isolation = Isolation(
            slots, loop, begin=self._begin, give_up=self._give_up_suspect, reopened=self._reopened
        )
        self.limits = Limits(
            loop,
            go_on=self._go_on,
            settle=self._settle,
            facts=self._facts,
            answered=self.check_isolation,
        )
        self.admission = Admission(
            loop,
            begin=self._begin,
            settle=self._settle,
            facts=self._facts,
            answered=self.check_isolation,
        )

    def runs(self) -> Iterable[Run]:
        """All runs that this worker has, those that lost their lease included."""
        for shard in self.shards:
            yield from list(shard.held.values())
            yield from list(shard.leaving)

    def start(self, shard: Shard, leases: Sequence[Lease], claimed_at: float) -> None:
        """Begins the runs of freshly claimed jobs, each of which has a slot taken; `claimed_at`: when their
        leases began at the latest, by the monotonic clock."""
        server_ms = shard.claimer.claimed_us // 1000
        asking: list[tuple[Run, Call]] = []
        limited: list[tuple[Run, Call]] = []
        for lease in leases:
            run = Run(lease=lease, host=shard, token=lease.token, renewed_at=claimed_at)
            before = shard.has(lease.job_id)
            if before is not None:
                self._meet(shard, before, run)
                continue
            shard.held[lease.job_id] = run
            if shard.closing or self._isolation.alone:
                self._settle(run, Verdict(Released(lease.job_id, lease.token)))
                continue
            run.late_ms = server_ms - run.due_ms
            call = self._prepare(run, shard, server_ms)
            if call is None:
                continue
            if lease.crashes < SUSPECT_CRASHES:
                if run.permit is not None:
                    limited.append((run, call))
                elif run.bucket is None:
                    self._begin(run, call)
                else:
                    asking.append((run, call))
            elif self._isolation.busy:
                self._settle(run, Verdict(Released(lease.job_id, lease.token)))
            else:
                self._isolation.hold(run, call)
        if self._slots.narrow and not self._isolation.busy:
            self._slots.narrow = False
            self._freed()
        if limited:
            self.limits.ask(shard, limited)
        if asking:
            self.admission.ask(shard, asking)
        self.check_isolation()

    def _go_on(self, shard: Shard, runs: list[tuple[Run, Call]]) -> None:
        """These have their permits; what is left is to ask for their starts."""
        asking = [(run, call) for run, call in runs if run.bucket is not None]
        for run, call in runs:
            if run.bucket is None:
                self._begin(run, call)
        if asking:
            self.admission.ask(shard, asking)

    def stop_all(self) -> None:
        """The grace is over: cancels every handler, so that its job goes back uncounted."""
        deadline = time.monotonic() + STUCK_AFTER_S
        for run in list(self.runs()):
            if not run.ended:
                run.stop("shutdown")
                run.deadline = deadline

    def check_isolation(self) -> None:
        """Something has ended or is settled: a job to be run alone may be next."""
        if self._slots.closed:
            self._isolation.check(active=self.active, held=sum(len(shard.held) for shard in self.shards))

    def release_waiting(self) -> None:
        """The worker stops: gives back a job that was to run alone later."""
        run = self._isolation.release()
        if run is not None:
            self._settle(run, Verdict(Released(run.job_id, run.token)))

    def lost(self, shard: Shard, run: Run, token: str) -> None:
        """The keeper was told that another claim has the job."""
        waiting = run.handle is None and not run.ended
        shard.lost(run, token)
        if run.lost and waiting:
            shard.leaving.discard(run)
            run.ended = True
            self._isolation.forget(run)
            self._free_slot(shard)
            self.check_isolation()
        elif run.lost and not run.ended:
            run.deadline = time.monotonic() + STUCK_AFTER_S
            self.timeouts.watch(run.deadline)

    def _prepare(self, run: Run, shard: Shard, server_ms: int) -> Call | None:
        """How to call the handler; None when the job's end was decided without it."""
        lease = run.lease
        try:
            if lease.payload is None:
                raise PayloadError("the stored payload is gone")
            envelope = decode_envelope(lease.payload)
            run.task = envelope.task
            run.headers = envelope.headers
            carried = envelope.carried
            run.remember = carried is not None and carried.given
            handler = shard.handlers.get(envelope.task)
            if handler is None:
                self._unknown(run, shard)
                return None
            policy = handler.policy
            run.policy = policy if carried is None else policy.with_carried(carried)
            if policy.max_running is not None:
                # Also of one that is not to be run: its last run may have left a permit behind.
                run.permit = Permit(run.job_id, handler.limited(envelope), policy.max_running.count)
            verdict = self._refused(run, shard, server_ms)
            if verdict is None:
                call = handler.prepare(envelope, self._in_thread)
                if policy.rate is not None and not self._is_admitted(run, server_ms):
                    run.bucket = handler.bucket(envelope)
                return call
        except UnknownVersion as error:
            self._warn_once(
                f"payload version of queue {shard.queue}", "job %s given back: %s", run.job_id, error
            )
            verdict = decision.handed_back(self._facts(run), str(error))
        except PayloadError as error:
            verdict = decision.unreadable(self._facts(run), error)
        except BaseException as error:  # noqa: BLE001  # the types of a handler may run code of the user's
            verdict = decision.after_run(self._facts(run), error, None)
        self._settle(run, verdict)
        return None

    def _is_admitted(self, run: Run, server_ms: int) -> bool:
        lease, rate = run.lease, run.policy.rate
        return rate is None or is_admitted(
            rate,
            run.tally.reservation,
            due_ms=lease.due_ms,
            now_ms=server_ms,
            losses=lease.crashes + lease.interruptions,
        )

    def _refused(self, run: Run, shard: Shard, server_ms: int) -> Verdict | None:
        """The end of a job that is not to be run: its workers died too often, or its time has passed."""
        lease = run.lease
        verdict = None
        if lease.crashes:
            verdict = decision.crashed_out(self._facts(run), lease.crashes)
        if lease.recovered:
            log.warning(
                "job %s (task %s, queue %s) was recovered: crashes %d, interruptions %d",
                lease.job_id,
                run.task,
                shard.queue,
                lease.crashes,
                lease.interruptions,
            )
            if self._reporter.active:
                self._reporter.tell(
                    JobRecovered(lease.job_id, shard.queue, run.task, lease.crashes, started=verdict is None)
                )
        if verdict is None and run.policy.expires_ms is not None:
            facts = msgspec.structs.replace(self._facts(run), now_ms=server_ms)
            verdict = decision.expired(facts, run.due_ms)
        return verdict

    def _begin(self, run: Run, call: Call) -> None:
        now = run.started = time.monotonic()
        timeout_ms = run.policy.timeout_ms
        if timeout_ms is not None:
            deadline = run.deadline = now + timeout_ms / 1000
            run.keep_until = deadline + self._keep_margin_s
            if deadline < self.timeouts.next:
                self.timeouts.watch(deadline)
        if self._reporter.active:
            late_by = timedelta(milliseconds=run.late_ms)
            self._reporter.tell(
                JobStarted(run.job_id, run.host.queue, run.task, run.tally.failures + 1, late_by)
            )
        self.active += 1
        handle = start_task(self._run(run, call), self._loop, run.task)
        if not run.ended:
            run.handle = handle

    async def _run(self, run: Run, call: Call) -> None:
        """The task of one handler; never raises, whatever the handler does, and awaits nothing after its
        end.
        """
        current_run.set(run)
        try:
            await call()
        except BaseException as error:  # noqa: BLE001  # every end of a handler is a settlement
            self._ended(run, error)
        else:
            self._ended(run, None)

    def _ended(self, run: Run, error: BaseException | None) -> None:
        shard = run.host
        assert isinstance(shard, Shard)  # noqa: S101  # narrows the type; runs are made by `start` only
        self.active -= 1
        self.ends += 1
        run.ended = True
        run.handle = None  # its context holds the run: garbage that is no circle needs no collector
        if run.lost:
            shard.leaving.discard(run)
            self._free_slot(shard)
        elif error is None and not self._reporter.active:
            run.settlement = Acked(run.lease.job_id, run.token, run.remember)
            self._free_slot(shard)
            shard.settler.add(run)
        else:
            self._settle(run, self._verdict(run, error))
        self.check_isolation()
        shard.poke()

    def _verdict(self, run: Run, error: BaseException | None) -> Verdict:
        run.finished = time.monotonic()
        try:
            verdict = decision.after_run(self._facts(run), error, run.stopped)
        except Exception:
            # A fault in deciding must not keep the job, or its slot, for ever.
            log.exception("no decision about the end of job %s (task %s): given back", run.job_id, run.task)
            return Verdict(Released(run.job_id, run.token))
        if error is not None:
            try:
                self._log_end(run, verdict, error)
            except Exception as fault:  # noqa: BLE001  # as for a tree of errors too deep to be shown
                log.error("job %s (task %s): no log of its end: %r", run.job_id, run.task, fault)
        return verdict

    def _log_end(self, run: Run, verdict: Verdict, error: BaseException) -> None:
        settlement = verdict.settlement
        # What a handler asked for by a directive has no place in the code that anybody looks for.
        trace = None if sole_directive(error) else (type(error), error, users_part(error.__traceback__))
        if isinstance(settlement, Buried):
            log.error("job %s (task %s) is buried: %s", run.job_id, run.task, verdict.error, exc_info=trace)
        elif isinstance(settlement, Deferred) and settlement.outcome == "retry":
            due = settlement.due
            log.warning(
                "job %s (task %s) failed in attempt %d of %d, again %s: %s",
                run.job_id,
                run.task,
                run.tally.failures + 1,
                run.policy.max_attempts,
                f"in {due.ms} ms" if due.relative else f"at {to_instant(due.ms)}",
                verdict.error,
                exc_info=trace,
            )
        elif run.stopped == "shutdown" and isinstance(settlement, Released):
            log.info("job %s (task %s) is given back, uncounted: the worker stops", run.job_id, run.task)
        elif verdict.error is not None:
            log.info("job %s (task %s): %s: %s", run.job_id, run.task, settlement.outcome, verdict.error)

    def _settle(self, run: Run, verdict: Verdict) -> None:
        """The run has ended, or will never begin, with that."""
        shard = run.host
        assert isinstance(shard, Shard)  # noqa: S101
        run.ended = True
        run.settlement, run.error = verdict.settlement, verdict.error
        self._free_slot(shard)
        shard.settle(run)

    def _meet(self, shard: Shard, before: Run, run: Run) -> None:
        """A job is claimed again that this worker still has: its lease ran out, and nobody else took it.

        Running: the run goes on under the new lease. Ended, but not yet settled: settled under the new lease.
        Stopped: settled at once as what it was stopped for, or put off until it has ended here.
        """
        token = run.token
        if before.settlement is not None:
            before.token = token
            before.settlement = msgspec.structs.replace(before.settlement, token=token)
            self._free_slot(shard)
        elif before.stopped is None and not before.lost:
            before.token, before.lease, before.renewed_at = token, run.lease, run.renewed_at
            self._free_slot(shard)
        else:
            run.task, run.policy, run.remember = before.task, before.policy, before.remember
            timed_out = before.stopped == "timeout" and not before.lost
            before.lost, before.stuck = True, before.stuck or timed_out
            shard.leaving.add(before)
            shard.held[run.job_id] = run
            if timed_out:
                self._settle(run, decision.after_run(self._facts(run), asyncio.CancelledError(), "timeout"))
            else:
                why = "still being stopped in this worker"
                self._settle(run, decision.put_off(self._facts(run), PUT_OFF_MS, why))

    def _give_up_suspect(self, run: Run) -> None:
        why = "to be run alone, but its worker did not become empty"
        self._settle(run, decision.put_off(self._facts(run), SUSPECT_PUT_OFF_MS, why))

    def _reopened(self) -> None:
        """What was given back meanwhile, and whatever else came, may be claimed again."""
        for shard in self.shards:
            shard.claimer.look_by(time.monotonic())
            shard.poke()

    def _unknown(self, run: Run, shard: Shard) -> None:
        verdict = decision.handed_back(self._facts(run), f"no handler for task {run.task!r} here")
        self._warn_once(
            run.task,
            "no handler for task %r of queue %s here: its jobs are given back",
            run.task,
            shard.queue,
        )
        if self._reporter.active and isinstance(verdict.settlement, Deferred):
            again_in = timedelta(milliseconds=verdict.settlement.due.ms)
            self._reporter.tell(TaskUnknown(run.job_id, shard.queue, run.task, again_in))
        self._settle(run, verdict)

    def _warn_once(self, name: str, message: str, *args: object) -> None:
        if name not in self._named and len(self._named) < 1000:  # bounded: names come from outside
            self._named.add(name)
            log.warning(message, *args)

    def _free_slot(self, shard: Shard) -> None:
        shard.portion.give_back(1)
        if len(self.shards) > 1:
            self._freed()

    def _facts(self, run: Run) -> Facts:
        shard = run.host
        return Facts(
            job_id=run.job_id,
            token=run.token,
            task=run.task,
            policy=run.policy,
            tally=run.lease.tally,
            now_ms=shard.now_ms() if isinstance(shard, Shard) else 0,
            random=random.random(),
            remember=run.remember,
        )


# Not `loop.create_task`: a task factory of the application's is not asked about the worker's own tasks, and
# the given name spares making one.
if sys.version_info >= (3, 12):

    def start_task(
        work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop, name: str
    ) -> asyncio.Task[T]:
        """A task that runs up to its first wait at once."""
        return asyncio.Task(work, loop=loop, name=name, eager_start=True)

else:

    def start_task(
        work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop, name: str
    ) -> asyncio.Task[T]:
        """A task; begins in the loop's next round."""
        return asyncio.Task(work, loop=loop, name=name)
