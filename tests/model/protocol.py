"""The protocol as an explicit-state model: two workers with one slot each, two jobs, a producer, a server.

It is the transition table (claim, ack, enqueue; a lease that expires is claimable again) together with what
keeps it safe: fences, sender records, seats. Each safeguard can be taken out, and then some invariant must
fail. Times are abstract: a job is due or not, a lease runs or has run out, a worker's timer is set for the
head of the queue, a moment after it, or far away.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from tests.model.states import (
    FAULTS,
    SAFEGUARDS,
    Answer,
    Fault,
    Job,
    Model,
    Plan,
    Record,
    Safeguard,
    Server,
    Step,
    Worker,
    is_held,
    is_waiting,
    old_calls,
    put,
    with_job,
    with_worker,
)


class Protocol:
    """Enumerates what may happen next.

    Args:
        without: safeguards taken out.
        faults: the kinds that may happen.
        most_faults: how many faults one history may contain, each kind at most once.
        most_expiries: how many leases may run out in it under a holder that lives.
        seats: model who waits until when, and notices; without, everybody looks at the right time.
    """

    def __init__(
        self,
        *without: Safeguard,
        faults: tuple[Fault, ...] = FAULTS,
        most_faults: int = 1,
        most_expiries: int = 1,
        seats: bool = True,
    ) -> None:
        self.has: Final = {safeguard: safeguard not in without for safeguard in SAFEGUARDS}
        self.faults = frozenset(faults)
        self.most_faults = most_faults
        self.most_expiries = most_expiries
        self.seats = seats

    def steps(self, m: Model) -> Iterator[Step]:
        if m.violation:
            return
        for w in (0, 1):
            yield from self._worker_steps(m, w)
        yield from self._producer_steps(m)
        for j, job in enumerate(m.server.jobs):
            if job.scheduled and not job.due:
                yield f"job {j} falls due", with_job(m, j, job._replace(due=True))
            if job.processing and job.runs:
                expired = with_job(m, j, job._replace(runs=False))
                if not is_held(m, j):
                    yield f"lease of {j}, which nobody renews, runs out", expired
                elif m.expiries < self.most_expiries:
                    yield f"lease of {j} runs out", expired._replace(expiries=m.expiries + 1)
        if m.snapshot is not None:
            yield "the replica takes over", _fail_over(m, m.snapshot)
        yield from self._faults(m)

    # ---- workers

    def _worker_steps(self, m: Model, w: int) -> Iterator[Step]:
        worker = m.workers[w]
        if worker.notice is not None:
            heard = worker._replace(
                notice=None, timer=worker.notice if worker.at == "waits" else worker.timer
            )
            yield f"worker {w} hears", with_worker(m, w, heard)
        match worker.at:
            case "waits":
                called = _new_call(m, w, "claims")
                yield f"worker {w} looks", called
            case "holds":
                yield f"worker {w} ends its job", _new_call(m, w, "acks")
            case "claims" if worker.reply is None:
                yield f"claim of {w} arrives", self._claim(m, w, current=True)
            case "acks" if worker.reply is None and worker.holds is not None:
                yield f"ack of {w} arrives", self._ack(m, w, worker.holds, current=True)
            case _:
                yield f"worker {w} has its answer", self._answered(m, w)

    def _answered(self, m: Model, w: int) -> Model:
        worker = m.workers[w]
        assert worker.reply is not None
        [answer] = worker.reply
        if worker.at == "claims":
            if answer is None:
                plan = m.server.idle[w]
                # A notice that came with the answer is applied to it.
                timer: Plan = (worker.notice or plan or "far") if self.seats else "head"
                return with_worker(m, w, worker._replace(at="waits", reply=None, notice=None, timer=timer))
            assert isinstance(answer, tuple)
            return with_worker(m, w, worker._replace(at="holds", reply=None, holds=answer))
        assert worker.holds is not None
        if answer is False and m.server.jobs[worker.holds[0]].done_by == w:
            m = m._replace(violation="an ack that counted was answered as refused")
        m = with_worker(m, w, worker._replace(at="claims", reply=None, holds=None))
        return old_calls(m, w)

    # ---- the server's scripts

    def _claim(self, m: Model, w: int, *, current: bool) -> Model:
        server = m.server
        record = server.claims[w]
        if self.has["stale"] and not current and record is not None:
            return m  # refused: a later call was carried out
        if self.has["record"] and record is not None and record.current and current:
            answer = record.answer
            if isinstance(answer, tuple) and server.jobs[answer[0]].token != (answer[1], w):
                answer = None  # somebody took it meanwhile
            elif isinstance(answer, tuple):
                m = with_job(m, answer[0], server.jobs[answer[0]]._replace(runs=True))
            return self._reply(m, w, answer, current=current)
        server = server._replace(idle=put(server.idle, w, None))
        found = self._claimable(server)
        if found is None:
            if self.seats:
                server = server._replace(idle=put(server.idle, w, self._seat(server)))
            server = server._replace(claims=put(server.claims, w, Record(current, None)))
            return self._reply(m._replace(server=server), w, None, current=current)
        clock = m.clock + 1
        fence = max(server.last_fence + 1, clock) if self.has["growing fence"] else clock
        job = server.jobs[found]._replace(scheduled=False, processing=True, runs=True, token=(fence, w))
        server = server._replace(
            jobs=put(server.jobs, found, job),
            last_fence=fence,
            claims=put(server.claims, w, Record(current, (found, fence))),
        )
        grows = fence > m.given[found]
        m = m._replace(
            server=server,
            clock=clock,
            given=put(m.given, found, max(fence, m.given[found])),
            violation="" if grows else "a fence did not grow",
        )
        m = self._watch(m, me=w) if is_waiting(server) else m
        return self._reply(m, w, (found, fence), current=current)

    def _claimable(self, server: Server) -> int | None:
        if self.has["expired claims"]:
            for j, job in enumerate(server.jobs):
                if job.processing and not job.runs:
                    return j
        for j, job in enumerate(server.jobs):
            if job.scheduled and job.due:
                return j
        return None

    def _seat(self, server: Server) -> Plan:
        taken = [plan for plan in server.idle if plan is not None]
        if "head" not in taken:
            return "head"
        return "second" if self.has["second seat"] and "second" not in taken else "far"

    def _watch(self, m: Model, *, me: int | None = None) -> Model:
        """Somebody plans to look at the head, a second one a moment after it; they are told."""
        wanted: list[Plan] = ["head", "second"] if self.has["second seat"] else ["head"]
        waiting = sorted(
            (w for w in (0, 1) if m.server.idle[w] is not None and w != me),
            key=lambda w: ("head", "second", "far").index(m.server.idle[w] or "far"),
        )
        for w, plan in zip(waiting, wanted, strict=False):
            if m.server.idle[w] != plan and not (m.server.idle[w] == "head" and plan == "second"):
                m = m._replace(server=m.server._replace(idle=put(m.server.idle, w, plan)))
                m = with_worker(m, w, m.workers[w]._replace(notice=plan))
        return m

    def _ack(self, m: Model, w: int, held: tuple[int, int], *, current: bool) -> Model:
        record = m.server.acks[w]
        if self.has["stale"] and not current and record is not None and record.current:
            return m
        if self.has["record"] and record is not None and record.current and current:
            return self._reply(m, w, record.answer, current=current)
        j, fence = held
        job = m.server.jobs[j]
        accepted = job.processing and (job.token == (fence, w) or not self.has["fence"])
        if accepted:
            if job.token != (fence, w):
                m = m._replace(violation="an ack without the lease was accepted")
            if job.done:
                m = m._replace(violation="a job was completed twice")
            m = with_job(m, j, Job(done=job.done + 1, done_by=w))
        acks = put(m.server.acks, w, Record(current, accepted))
        return self._reply(m._replace(server=m.server._replace(acks=acks)), w, accepted, current=current)

    def _reply(self, m: Model, w: int, answer: Answer, *, current: bool) -> Model:
        if not current:
            return m  # nobody reads it
        return with_worker(m, w, m.workers[w]._replace(reply=(answer,)))

    # ---- the producer of job 1

    def _producer_steps(self, m: Model) -> Iterator[Step]:
        if m.producer == "sends":
            yield "enqueue arrives", self._enqueue(m, 1)._replace(producer="waits")
        elif m.producer == "waits":
            told = m._replace(producer="told", told=(True, True))
            job = m.server.jobs[1]
            if not (job.payload or job.done):  # taken by a rewind before it was told
                told = told._replace(taken=(told.taken[0], True), again=(told.again[0], True))
            yield "the producer has its answer", told
        for j in (0, 1):
            if m.again[j]:
                sent = self._write(m, j)
                sent = sent._replace(taken=put(sent.taken, j, False), again=put(sent.again, j, False))
                yield f"job {j} is sent again", sent

    def _enqueue(self, m: Model, j: int) -> Model:
        if self.has["record"] and m.server.written:
            return m
        m = m._replace(server=m.server._replace(written=True))
        return self._write(m, j, marked=False)

    def _write(self, m: Model, j: int, *, marked: bool = True) -> Model:
        job = m.server.jobs[j]
        if job.payload or (marked and self.has["marks"] and job.done):
            return m
        m = with_job(m, j, job._replace(scheduled=True, payload=True, due=False, token=None))
        # It is the new head: whoever waits had planned for later.
        idle = tuple("far" if plan is not None else None for plan in m.server.idle)
        m = m._replace(server=m.server._replace(idle=idle))  # type: ignore[arg-type]
        for w in (0, 1):
            worker = m.workers[w]
            if worker.at == "waits" and self.seats:
                m = with_worker(m, w, worker._replace(timer="far"))
        return self._watch(m)

    # ---- faults

    def _faults(self, m: Model) -> Iterator[Step]:
        if len(m.faults) >= self.most_faults:
            return
        may = self.faults - set(m.faults)
        for w in (0, 1):
            worker = m.workers[w]
            if worker.reply is not None and "lose reply" in may:
                # The worker does not know, and sends the same call again.
                yield f"the answer to {w} is lost", _fault(m, "lose reply", w, worker._replace(reply=None))
            if worker.at in ("claims", "acks") and worker.copy is None and "late copy" in may:
                kind = "claim" if worker.at == "claims" else "ack"
                held = worker._replace(copy=(kind, worker.holds, True))
                yield f"a packet of {w} is held up", _fault(m, "late copy", w, held)
            if worker.at == "holds" and "forget" in may:
                gone = worker._replace(at="claims", holds=None)
                yield f"worker {w} is replaced by a new one", old_calls(_fault(m, "forget", w, gone), w)
            if worker.notice is not None and "lose notice" in may:
                yield f"a notice to {w} is lost", _fault(m, "lose notice", w, worker._replace(notice=None))
        if m.producer == "waits" and "lose reply" in may:
            yield (
                "the producer's answer is lost",
                m._replace(producer="sends", faults=(*m.faults, "lose reply")),
            )
        if "fail over" in may and "clock back" not in m.faults:
            faults: tuple[Fault, ...] = (*m.faults, "fail over")
            yield "the replica falls behind", m._replace(snapshot=m.server, faults=faults)
        if "clock back" in may and "fail over" not in m.faults and m.clock > 1:
            yield "the clock goes back", _clock_back(m)

    def copies(self, m: Model) -> Iterator[Step]:
        """What the network held up arrives."""
        for w in (0, 1):
            copy = m.workers[w].copy
            if copy is None or m.violation:
                continue
            kind, held, current = copy
            arrived = with_worker(m, w, m.workers[w]._replace(copy=None))
            if current:  # the call is still the sender's: as if it had arrived twice
                if kind == "claim" and m.workers[w].at == "claims" and m.workers[w].reply is None:
                    yield f"held-up claim of {w} arrives first", self._claim(arrived, w, current=True)
                continue
            if kind == "claim":
                yield f"held-up claim of {w} arrives", self._claim(arrived, w, current=False)
            elif held is not None:
                yield f"held-up ack of {w} arrives", self._ack(arrived, w, held, current=False)


def _fault(m: Model, fault: Fault, w: int, worker: Worker) -> Model:
    return with_worker(m, w, worker)._replace(faults=(*m.faults, fault))


def _new_call(m: Model, w: int, at: Literal["claims", "acks"]) -> Model:
    return old_calls(with_worker(m, w, m.workers[w]._replace(at=at, reply=None)), w)


def _fail_over(m: Model, snapshot: Server) -> Model:
    """The server is what the replica was; connections are new, so everybody asks again."""
    taken = m.taken
    for j in (0, 1):
        job = snapshot.jobs[j]
        if m.told[j] and not job.payload and not job.done:
            taken = put(taken, j, True)
    m = m._replace(server=snapshot, snapshot=None, taken=taken, again=m.told, clock=m.clock + 1)
    for w in (0, 1):
        m = with_worker(m, w, m.workers[w]._replace(notice=None, reply=None))
        if m.workers[w].at == "waits":
            m = _new_call(m, w, "claims")  # a claim follows each subscription
    return m


def _clock_back(m: Model) -> Model:
    # The last fence may be left out of the state while the clock is ahead of it (see `canonical`).
    server = m.server._replace(last_fence=max(m.server.last_fence, m.clock))
    return m._replace(server=server, clock=0, faults=(*m.faults, "clock back"))
