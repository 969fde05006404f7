"""The protocol as an explicit-state model: two workers with one slot each, two jobs, a producer, a server.

It is the transition table (claim, ack, enqueue; a lease that expires is claimable again) together with what
keeps it safe: fences, sender records, seats. Each safeguard can be taken out, and then some invariant must
fail. Times are abstract: a job is due or not, a lease runs or has run out, a worker's timer is set for the
head of the queue, a moment after it, or far away.

Fences and the clock are kept as ranks, call ids as "the current one" or "an old one", so that the state space
is finite.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

Safeguard: TypeAlias = Literal[
    "fence", "record", "stale", "second seat", "expired claims", "growing fence", "marks"
]
SAFEGUARDS: Final[tuple[Safeguard, ...]] = (
    "fence",
    "record",
    "stale",
    "second seat",
    "expired claims",
    "growing fence",
    "marks",
)

T = TypeVar("T")

Answer: TypeAlias = tuple[int, int] | bool | None
"""Of a claim: the job and fence given, or None. Of an ack: whether it was accepted."""

Plan: TypeAlias = Literal["head", "second", "far"]
Fault: TypeAlias = Literal["lose reply", "late copy", "forget", "fail over", "clock back", "lose notice"]


FAULTS: Final[tuple[Fault, ...]] = (
    "lose reply",
    "late copy",
    "forget",
    "fail over",
    "clock back",
    "lose notice",
)


class Job(NamedTuple):
    """One job on the server. `done` counts accepted completions (a server that is rewound forgets them)."""

    scheduled: bool = False
    processing: bool = False
    payload: bool = False
    due: bool = False
    runs: bool = False
    token: tuple[int, int] | None = None  # fence, worker
    done: int = 0
    done_by: int | None = None


class Record(NamedTuple):
    """A sender's last call and its answer. `current`: it is the call the sender is at."""

    current: bool
    answer: Answer


class Server(NamedTuple):
    jobs: tuple[Job, Job]
    last_fence: int = 0
    claims: tuple[Record | None, Record | None] = (None, None)
    acks: tuple[Record | None, Record | None] = (None, None)
    written: bool = False  # the producer's record
    idle: tuple[Plan | None, Plan | None] = (None, None)


class Worker(NamedTuple):
    """`reply`: the server has carried the call out, and its answer is on the way. `copy`: a packet of that
    call (or an older one) that the network may still deliver."""

    at: Literal["waits", "claims", "holds", "acks"] = "claims"
    reply: tuple[Answer] | None = None
    timer: Plan = "head"
    notice: Plan | None = None
    holds: tuple[int, int] | None = None  # job, fence
    copy: tuple[str, tuple[int, int] | None, bool] | None = None  # kind, what it acks, current


class Model(NamedTuple):
    """Everything.

    Attributes:
        snapshot: what a replica that fell behind has.  given: the highest fence given for each job.
        told: jobs whose enqueue was acknowledged.  taken: those that a rewind took.
        again: those that their producer will send again, since the server failed over.
    """

    server: Server
    snapshot: Server | None = None
    workers: tuple[Worker, Worker] = (Worker(), Worker())
    producer: Literal["sends", "waits", "told"] = "sends"
    clock: int = 1
    given: tuple[int, int] = (0, 0)
    told: tuple[bool, bool] = (True, False)
    taken: tuple[bool, bool] = (False, False)
    again: tuple[bool, bool] = (False, False)
    expiries: int = 0
    faults: tuple[Fault, ...] = ()
    violation: str = ""


Step: TypeAlias = tuple[str, Model]

_FIRST: Final = Server(jobs=(Job(scheduled=True, payload=True), Job()))
START: Final = Model(_FIRST)


def put(pair: tuple[T, T], at: int, value: T) -> tuple[T, T]:
    """A pair with one side exchanged."""
    return (value, pair[1]) if at == 0 else (pair[0], value)


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
                yield f"job {j} falls due", _with_job(m, j, job._replace(due=True))
            if job.processing and job.runs:
                expired = _with_job(m, j, job._replace(runs=False))
                if not _is_held(m, j):
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
            yield f"worker {w} hears", _with_worker(m, w, heard)
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
                return _with_worker(m, w, worker._replace(at="waits", reply=None, notice=None, timer=timer))
            assert isinstance(answer, tuple)
            return _with_worker(m, w, worker._replace(at="holds", reply=None, holds=answer))
        assert worker.holds is not None
        if answer is False and m.server.jobs[worker.holds[0]].done_by == w:
            m = m._replace(violation="an ack that counted was answered as refused")
        m = _with_worker(m, w, worker._replace(at="claims", reply=None, holds=None))
        return _old_calls(m, w)

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
                m = _with_job(m, answer[0], server.jobs[answer[0]]._replace(runs=True))
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
        m = self._watch(m, me=w) if _waiting(server) else m
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
                m = _with_worker(m, w, m.workers[w]._replace(notice=plan))
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
            m = _with_job(m, j, Job(done=job.done + 1, done_by=w))
        acks = put(m.server.acks, w, Record(current, accepted))
        return self._reply(m._replace(server=m.server._replace(acks=acks)), w, accepted, current=current)

    def _reply(self, m: Model, w: int, answer: Answer, *, current: bool) -> Model:
        if not current:
            return m  # nobody reads it
        return _with_worker(m, w, m.workers[w]._replace(reply=(answer,)))

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
        m = _with_job(m, j, job._replace(scheduled=True, payload=True, due=False, token=None))
        # It is the new head: whoever waits had planned for later.
        idle = tuple("far" if plan is not None else None for plan in m.server.idle)
        m = m._replace(server=m.server._replace(idle=idle))  # type: ignore[arg-type]
        for w in (0, 1):
            worker = m.workers[w]
            if worker.at == "waits" and self.seats:
                m = _with_worker(m, w, worker._replace(timer="far"))
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
                yield f"worker {w} is replaced by a new one", _old_calls(_fault(m, "forget", w, gone), w)
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
            arrived = _with_worker(m, w, m.workers[w]._replace(copy=None))
            if current:  # the call is still the sender's: as if it had arrived twice
                if kind == "claim" and m.workers[w].at == "claims" and m.workers[w].reply is None:
                    yield f"held-up claim of {w} arrives first", self._claim(arrived, w, current=True)
                continue
            if kind == "claim":
                yield f"held-up claim of {w} arrives", self._claim(arrived, w, current=False)
            elif held is not None:
                yield f"held-up ack of {w} arrives", self._ack(arrived, w, held, current=False)


def _is_held(m: Model, j: int) -> bool:
    """Whether the lease's worker knows of it, or will when its answer arrives or is asked for again."""
    token = m.server.jobs[j].token
    if token is None:
        return False
    fence, w = token
    worker, record = m.workers[w], m.server.claims[w]
    promised = record is not None and record.current and record.answer == (j, fence)
    return worker.holds == (j, fence) or (worker.at == "claims" and promised)


def _waiting(server: Server) -> bool:
    return any(job.scheduled or (job.processing and not job.runs) for job in server.jobs)


def _with_worker(m: Model, w: int, worker: Worker) -> Model:
    return m._replace(workers=put(m.workers, w, worker))


def _with_job(m: Model, j: int, job: Job) -> Model:
    return m._replace(server=m.server._replace(jobs=put(m.server.jobs, j, job)))


def _fault(m: Model, fault: Fault, w: int, worker: Worker) -> Model:
    return _with_worker(m, w, worker)._replace(faults=(*m.faults, fault))


def _new_call(m: Model, w: int, at: Literal["claims", "acks"]) -> Model:
    return _old_calls(_with_worker(m, w, m.workers[w]._replace(at=at, reply=None)), w)


def _old_calls(m: Model, w: int) -> Model:
    """The worker's next call has a new id: records and packets of the one before are old now."""

    def aged(server: Server) -> Server:
        def old(record: Record | None) -> Record | None:
            return None if record is None or m.workers[w].copy is None else Record(False, None)

        return server._replace(
            claims=put(server.claims, w, old(server.claims[w])), acks=put(server.acks, w, old(server.acks[w]))
        )

    worker = m.workers[w]
    if worker.copy is not None:
        m = _with_worker(m, w, worker._replace(copy=(worker.copy[0], worker.copy[1], False)))
    return m._replace(server=aged(m.server), snapshot=m.snapshot and aged(m.snapshot))


def _fail_over(m: Model, snapshot: Server) -> Model:
    """The server is what the replica was; connections are new, so everybody asks again."""
    taken = m.taken
    for j in (0, 1):
        job = snapshot.jobs[j]
        if m.told[j] and not job.payload and not job.done:
            taken = put(taken, j, True)
    m = m._replace(server=snapshot, snapshot=None, taken=taken, again=m.told, clock=m.clock + 1)
    for w in (0, 1):
        m = _with_worker(m, w, m.workers[w]._replace(notice=None, reply=None))
        if m.workers[w].at == "waits":
            m = _new_call(m, w, "claims")  # a claim follows each subscription
    return m


def _clock_back(m: Model) -> Model:
    # The last fence may be left out of the state while the clock is ahead of it (see `canonical`).
    server = m.server._replace(last_fence=max(m.server.last_fence, m.clock))
    return m._replace(server=server, clock=0, faults=(*m.faults, "clock back"))


def _known(m: Model, server: Server) -> Server:
    """Without the records of calls that are over and of which no packet is left."""
    for w in (0, 1):
        worker = m.workers[w]
        if worker.copy is None and worker.at != "claims":
            server = server._replace(claims=put(server.claims, w, None))
        if worker.copy is None and worker.at != "acks":
            server = server._replace(acks=put(server.acks, w, None))
    return server


def canonical(m: Model) -> Model:
    """The same state without what can have no effect any more, and with fences and the clock by rank: only
    their order matters."""
    for w in (0, 1):
        if m.workers[w].at != "waits":  # its timer is set anew when it waits again
            m = _with_worker(m, w, m.workers[w]._replace(timer="head"))
    m = m._replace(server=_known(m, m.server), snapshot=m.snapshot and _known(m, m.snapshot))
    if m.snapshot is None:
        given = tuple(0 if job.done else fence for job, fence in zip(m.server.jobs, m.given, strict=True))
        m = m._replace(given=given)  # type: ignore[arg-type]
        if m.clock >= m.server.last_fence:
            m = m._replace(server=m.server._replace(last_fence=0))
    values = {0, m.clock, m.server.last_fence, *m.given}
    for server in (m.server, m.snapshot) if m.snapshot is not None else (m.server,):
        values |= {server.last_fence}
        values |= {job.token[0] for job in server.jobs if job.token}
        values |= {r.answer[1] for r in server.claims if r is not None and isinstance(r.answer, tuple)}
    for worker in m.workers:
        values |= {worker.holds[1]} if worker.holds else set()
        values |= {worker.copy[1][1]} if worker.copy and worker.copy[1] else set()
        values |= {r[1] for r in worker.reply or () if isinstance(r, tuple)}
    rank = {value: n for n, value in enumerate(sorted(values))}

    def ranked_pair(pair: Answer) -> tuple[int, int] | None:
        return (pair[0], rank[pair[1]]) if isinstance(pair, tuple) else None

    def ranked_server(server: Server) -> Server:
        jobs = tuple(j._replace(token=j.token and (rank[j.token[0]], j.token[1])) for j in server.jobs)
        claims = tuple(r and r._replace(answer=ranked_pair(r.answer)) for r in server.claims)
        return server._replace(jobs=jobs, last_fence=rank[server.last_fence], claims=claims)  # type: ignore[arg-type]

    workers = tuple(
        w._replace(
            holds=ranked_pair(w.holds),
            copy=w.copy and (w.copy[0], ranked_pair(w.copy[1]), w.copy[2]),
            reply=(ranked_pair(w.reply[0]),) if w.reply and isinstance(w.reply[0], tuple) else w.reply,
        )
        for w in m.workers
    )
    return m._replace(
        server=ranked_server(m.server),
        snapshot=m.snapshot and ranked_server(m.snapshot),
        workers=workers,  # type: ignore[arg-type]
        clock=rank[m.clock],
        given=(rank[m.given[0]], rank[m.given[1]]),
    )
