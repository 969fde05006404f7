"""A queue in a cluster: URLs and clients, which nodes are spoken to, and slots on the move."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Sequence

import pytest
import redis
import redis.asyncio
import redis.exceptions
from redis.asyncio.cluster import ClusterNode as Startup
from redis.asyncio.connection import SSLConnection

from aiodq import Queue, Worker
from aiodq._core.due import Due
from aiodq._core.errors import ConfigError, StoreUnavailable
from aiodq._core.settlement import Acked
from aiodq._core.store import ClaimRequest, Entry, Notice
from aiodq._redis import cluster as ways
from aiodq._redis.backend import RedisBackend, cluster_of, new_sender_id
from aiodq._redis.cluster import Topology
from aiodq._redis.scripts import Scripting, library_source, load_scripts
from aiodq._redis.store import RedisStore
from tests.clusters import SLOTS, Cluster, ClusterNode, names_in, queue_slot
from tests.conftest import MakeServer, RunScript
from tests.servers import ServerProcess, free_port, wait_until

AMONG_NODES = ("replconf", "ping", "psync", "cluster", "role", "info", "client", "select", "hello")
"""What the nodes, and the looks of these tests, say beside what clients of the queue say."""


def said_to(nodes: Sequence[ClusterNode]) -> dict[str, int]:
    """What was said to these nodes, but for what nodes say to one another."""
    said: dict[str, int] = {}
    for node in nodes:
        for name, calls in node.calls().items():
            if name.partition("|")[0] not in AMONG_NODES:
                said[name] = said.get(name, 0) + calls
    return said


async def finish_all(store: RedisStore) -> list[str]:
    """Claims what is due and acks it; tells the ids."""
    worker = store.worker(new_sender_id(), lambda _: None)
    try:
        claim = (await worker.turn([], ClaimRequest(want=100, lease_ms=30_000))).claim
        assert claim is not None
        await worker.turn([Acked(lease.job_id, lease.token) for lease in claim.leases], None, last=True)
        await worker.leave(holds=False)
        return [lease.job_id for lease in claim.leases]
    finally:
        await worker.aclose()


@pytest.fixture
async def store(cluster: Cluster, queue_name: str) -> AsyncIterator[RedisStore]:
    backend = RedisBackend(url=cluster.url)
    yield backend.store(queue_name)
    await backend.aclose()


async def test_nodes_without_a_slot_of_the_queue_hear_nothing(cluster: Cluster, queue_name: str) -> None:
    ours = cluster.master_of(queue_slot(queue_name))
    others = [node for node in cluster.nodes if node not in (ours, cluster.replica_of(ours))]
    ran: list[int] = []
    queue = Queue(queue_name, url=cluster.url)

    @queue.task
    async def note(n: int) -> None:
        ran.append(n)

    async with queue, Worker(queue):
        await note.enqueue(-1)
        await asyncio.to_thread(wait_until, lambda: ran)
        before, evals = said_to(others), said_to([ours])["evalsha"]
        for n in range(50):
            await note.after(n / 100).enqueue(n)
        await asyncio.to_thread(wait_until, lambda: len(ran) == 51)
        await asyncio.sleep(2)
        assert said_to([ours])["evalsha"] > evals + 50
        assert said_to(others) == before


async def test_start_asks_one_node_for_each_duty(cluster: Cluster, queue_name: str) -> None:
    def asked() -> int:
        return sum(node.calls().get("cluster|slots", 0) for node in cluster.nodes)

    before = asked()
    queue = Queue(queue_name, url=cluster.url)

    @queue.task
    async def note() -> None: ...

    async with queue, Worker(queue):
        await queue.stats()
        await asyncio.sleep(1)
    assert asked() - before <= 3


async def test_queues_on_one_node_share_a_connection(cluster: Cluster) -> None:
    names = names_in(range(SLOTS // 3))
    backend = RedisBackend(url=cluster.url)
    stores = [backend.store(next(names)) for _ in range(5)]
    await asyncio.gather(*(store.enqueue([Entry("a", b"", Due(0))]) for store in stores))
    worker_id = new_sender_id()
    workers = [store.worker(worker_id, lambda _: None) for store in stores]
    acks: list[Acked] = []
    ears = [asyncio.create_task(worker.listen()) for worker in workers]
    for worker in workers:
        claim = (await worker.turn([], ClaimRequest(want=1, lease_ms=30_000))).claim
        assert claim is not None
        (lease,) = claim.leases
        acks.append(Acked(lease.job_id, lease.token))
    with cluster.master_of(0).client() as client:
        connected = [c for c in client.client_list() if c["cmd"] in ("evalsha", "ssubscribe", "script|load")]
    assert len(connected) == 3, connected
    for ack, worker in zip(acks, workers, strict=True):
        await worker.turn([ack], None, last=True)
        await worker.leave(holds=False)
    for task in ears:
        task.cancel()
    await asyncio.wait(ears)
    for worker in workers:
        await worker.aclose()
    await backend.aclose()


async def test_b113_a_thousand_jobs_of_twenty_queues_take_two_calls_for_each_queue(cluster: Cluster) -> None:
    names = [name for third in thirds() for name in itertools.islice(names_in(third), 7)][:20]
    queues = [Queue(name, url=cluster.url) for name in names]
    tasks = [queue.task(_nothing) for queue in queues]
    async with contextlib.AsyncExitStack() as stack:
        for queue, task in zip(queues, tasks, strict=True):
            await stack.enter_async_context(queue)
            await task.after(3600).enqueue(-1)
        before = said_to(cluster.masters())["evalsha"]
        jobs = [
            queue.enqueue_many([task.after(3600).job(n) for n in range(50)])
            for queue, task in zip(queues, tasks, strict=True)
        ]
        outcomes = await asyncio.gather(*jobs)
        assert [[job.created for job in made] for made in outcomes] == [[True] * 50] * 20
        # Up to 31 jobs go in one call; more are worth a second one beside it.
        assert said_to(cluster.masters())["evalsha"] - before <= 2 * 20
        assert {cluster.master_of(queue_slot(name)).port for name in names} == {
            node.port for node in cluster.masters()
        }
    cluster.flush()


def thirds() -> list[range]:
    return [range(n * SLOTS // 3, (n + 1) * SLOTS // 3) for n in range(3)]


async def _nothing(n: int) -> None: ...


_WORKER = """
import asyncio, sys
from aiodq import Queue, Worker

queue = Queue(sys.argv[1], url=sys.argv[2])

@queue.task
async def work(n: int) -> None:
    print("started", n, flush=True)
    await asyncio.sleep(3600)

async def main() -> None:
    async with queue, Worker(queue, concurrency=5):
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_b118_a_killed_workers_jobs_run_again_within_a_second(
    cluster: Cluster, queue_name: str, run_script: RunScript
) -> None:
    """Presence by sharded channels: what `SHARDNUMSUB` says on the node of the slot."""
    ran: list[int] = []
    queue = Queue(queue_name, url=cluster.url)

    @queue.task
    async def work(n: int) -> None:
        ran.append(n)

    victim = run_script(_WORKER, queue_name, cluster.url)
    async with queue:
        for n in range(5):
            await work.enqueue(n)
        for _ in range(5):
            await asyncio.to_thread(victim.wait_for, "started")
        async with Worker(queue):
            await asyncio.sleep(3.5)  # it is steady
            killed = time.monotonic()
            victim.kill()
            await asyncio.to_thread(wait_until, lambda: len(ran) == 5)
            assert time.monotonic() - killed < 1.5
    assert sorted(ran) == list(range(5))


@pytest.mark.parametrize("scripting", ["eval", "functions"])
async def test_b112_a_node_that_does_not_know_the_scripts_learns_them(
    cluster: Cluster, queue_name: str, scripting: Scripting
) -> None:
    """A slot that moves to a new node: there the script cache is empty."""
    backend = RedisBackend(url=cluster.url, scripting=scripting)
    store, slot = backend.store(queue_name), queue_slot(queue_name)
    await store.enqueue([Entry("a", b"body", Due(0))])
    home = cluster.master_of(slot)
    for node in cluster.masters():
        if node is not home:
            node.say("SCRIPT", "FLUSH")
            node.say("FUNCTION", "FLUSH")
    await asyncio.to_thread(cluster.move, slot)
    assert cluster.master_of(slot) is not home
    assert (await store.enqueue([Entry("b", b"body", Due(0))]))[0].created
    assert sorted(await finish_all(store)) == ["a", "b"]
    await backend.aclose()


async def test_in_a_half_moved_slot_asking_at_the_new_node_does_not_help(
    cluster: Cluster, store: RedisStore, queue_name: str
) -> None:
    """Why calls wait where ASK is answered: scripts name keys that do not exist, and each such script is
    refused until the slot has moved."""
    await store.enqueue([Entry("a", b"body", Due(0))])
    slot = queue_slot(queue_name)
    source, target = cluster.begin_move(slot)
    while cluster.move_keys(slot, source, target):
        pass
    script = load_scripts(sharded=True)["enqueue"]
    call = ["EVAL", script.source, len(script.header.keys)]
    base = f"aiodq:{{{queue_name}}}:"
    call += [base + key for key in script.header.keys]
    call += ["00000001", base + "wake:", "0", "0", "", "b", "+0", "body"]
    try:
        with pytest.raises(redis.exceptions.ResponseError) as asked:
            source.say(*call)
        assert isinstance(asked.value, redis.exceptions.AskError | redis.exceptions.TryAgainError)
        with target.client() as client, client.pipeline(transaction=False) as pipe:
            pipe.execute_command("ASKING")
            pipe.execute_command(*call)
            answers = pipe.execute(raise_on_error=False)
        assert answers[0] in (True, b"OK")
        assert isinstance(answers[1], redis.exceptions.TryAgainError)
        waiting = asyncio.create_task(store.enqueue([Entry("b", b"body", Due(0))]))
        await asyncio.sleep(0.3)
        assert not waiting.done()
    finally:
        cluster.end_move(slot, source, target)
    assert (await waiting)[0].created
    assert sorted(await finish_all(store)) == ["a", "b"]


async def test_ears_follow_a_slot(cluster: Cluster, store: RedisStore, queue_name: str) -> None:
    notices: list[Notice] = []
    worker = store.worker(new_sender_id(), notices.append)
    ears = asyncio.create_task(worker.listen())
    await asyncio.to_thread(wait_until, lambda: Notice("connected") in notices)
    await asyncio.to_thread(cluster.move, queue_slot(queue_name))
    await asyncio.to_thread(wait_until, lambda: notices.count(Notice("connected")) == 2)
    assert Notice("renew") in notices
    await store.resume()
    await asyncio.to_thread(wait_until, lambda: Notice("resume") in notices)
    answer = (await worker.turn([], ClaimRequest(want=1, lease_ms=1000))).claim
    assert answer is not None
    assert not answer.deaf
    await worker.leave(holds=False)
    ears.cancel()
    await asyncio.wait([ears])
    await worker.aclose()


async def test_a_users_own_client_leads_into_the_cluster(cluster: Cluster, queue_name: str) -> None:
    first = cluster.nodes[0]
    client = redis.asyncio.RedisCluster(startup_nodes=[Startup("127.0.0.1", first.port)])
    queue = Queue(queue_name, redis=client)

    @queue.task
    async def note() -> None: ...

    async with queue:
        await note.after(3600).options(job_id="a").enqueue()
        with cluster.client() as plain:
            assert plain.zscore(f"aiodq:{{{queue_name}}}:schedule", "a")
        await queue.cancel("a")
    assert not client.nodes_manager.nodes_cache, "its own connections are left alone"


async def test_nodes_are_reached_where_the_client_says(cluster: Cluster, queue_name: str) -> None:
    """`address_remap` of a client that reaches the nodes through something else."""
    asked: list[tuple[str, int]] = []

    def remap(address: tuple[str, int]) -> tuple[str, int]:
        asked.append(address)
        return "localhost", address[1]

    client = redis.asyncio.RedisCluster("127.0.0.1", cluster.nodes[0].port, address_remap=remap)
    backend = RedisBackend(client=client)
    await backend.store(queue_name).stats()
    assert ("127.0.0.1", cluster.nodes[1].port) in asked
    await backend.aclose()


def test_a_client_that_decodes_is_refused() -> None:
    client = redis.asyncio.RedisCluster("127.0.0.1", 1, decode_responses=True)
    with pytest.raises(ConfigError, match="decode_responses=False"):
        RedisBackend(client=client)
    with pytest.raises(ConfigError, match="decode_responses=False"):
        Queue("q", redis=client)


async def test_unreachable_nodes_are_named() -> None:
    backend = RedisBackend(url="redis+cluster://127.0.0.1:1,127.0.0.1:2")
    with pytest.raises(
        StoreUnavailable,
        match=r"nodes 127\.0\.0\.1:1, 127\.0\.0\.1:2 .*Connect call failed.*; enqueue was not sent",
    ):
        await backend.store("q").enqueue([Entry("a", b"", Due(0))])
    await backend.aclose()


async def test_a_single_server_is_no_cluster(valkey: ServerProcess) -> None:
    backend = RedisBackend(url=f"redis+cluster://127.0.0.1:{valkey.port}")
    with pytest.raises(ConfigError, match="no node of a cluster: use redis://"):
        await backend.store("q").enqueue([Entry("a", b"", Due(0))])
    await backend.aclose()


def _alone() -> tuple[str, ...]:
    """Settings of a cluster of one node."""
    return ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))


async def test_a_password_is_said_to_every_node(make_server: MakeServer) -> None:
    server = make_server(*_alone())
    with server.client() as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
        client.acl_setuser(
            "shop",
            enabled=True,
            passwords=["+p@ss"],
            keys=["aiodq:*"],
            channels=["aiodq:*"],
            commands=_RIGHTS,
        )
    backend = RedisBackend(url=f"redis+cluster://shop:p%40ss@127.0.0.1:{server.port}")
    store = backend.store("q")
    notices: list[Notice] = []
    worker = store.worker(new_sender_id(), notices.append)
    ears = asyncio.create_task(worker.listen())
    assert (await store.enqueue([Entry("a", b"", Due(0))]))[0].created
    await asyncio.to_thread(wait_until, lambda: Notice("connected") in notices)
    answer = (await worker.turn([], ClaimRequest(want=1, lease_ms=1000))).claim
    assert answer is not None
    assert not answer.deaf
    ears.cancel()
    await asyncio.wait([ears])
    await worker.aclose()
    await backend.aclose()

    backend = RedisBackend(url=f"redis+cluster://shop:wrong@127.0.0.1:{server.port}")
    with pytest.raises(StoreUnavailable, match=r"cannot reach.*invalid username-password"):
        await backend.store("q").enqueue([Entry("a", b"", Due(0))])
    await backend.aclose()


_RIGHTS = [
    *("+@read", "+@write", "+@scripting", "+@connection", "+publish", "+spublish", "+ssubscribe"),
    *("+sunsubscribe", "+pubsub", "+info", "+time", "+cluster|slots", "+command|info"),
]


async def test_a_cluster_without_sharded_channels_is_refused(make_server: MakeServer) -> None:
    """As before Redis 7.0."""
    server = make_server(*_alone(), "--rename-command", "SPUBLISH", "")
    backend = RedisBackend(url=f"redis+cluster://127.0.0.1:{server.port}")
    with pytest.raises(ConfigError, match=r"needs Redis 7\.0"):
        await backend.store("q").enqueue([Entry("a", b"", Due(0))])
    await backend.aclose()


async def test_a_slot_that_nobody_serves_is_waited_for(make_server: MakeServer) -> None:
    server = make_server(*_alone())
    backend = RedisBackend(url=f"redis+cluster://127.0.0.1:{server.port}")
    waiting = asyncio.create_task(backend.store("q").enqueue([Entry("a", b"", Due(0))]))
    await asyncio.sleep(0.5)
    assert not waiting.done()
    with server.client() as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS - 1)
    assert (await waiting)[0].created
    await backend.aclose()


async def test_the_next_node_is_asked_when_one_is_silent(cluster: Cluster) -> None:
    found = cluster_of(url=f"redis+cluster://127.0.0.1:1,127.0.0.1:{cluster.nodes[0].port}")
    assert found is not None
    known, _ = found
    topology = Topology(known.seeds, known.make)
    first = await topology.master_of(0, since=0.0)
    assert first[1] in [node.port for node in cluster.masters()]
    assert topology.ever_answered


def test_the_parts_of_a_url() -> None:
    known = ways.of_url(
        "rediss+cluster://me:p%40ss@a,b:7000,[::1]:7001/0?socket_timeout=4&ssl_cert_reqs=none"
    )
    assert known.seeds == [("a", 6379), ("b", 7000), ("::1", 7001)]
    assert known.kind is SSLConnection
    assert known.settings == {
        "username": "me",
        "password": "p@ss",
        "socket_timeout": 4.0,
        "ssl_cert_reqs": "none",
    }


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis+cluster://", "needs hosts"),
        ("redis+cluster://a,,b", "needs hosts"),
        ("redis+cluster://a:7000/3", "database 0 only"),
        ("redis+cluster://a:port", "is not understood"),
        ("redis+cluster://a?nonsense=1", "not understood.*nonsense"),
    ],
)
def test_unusable_urls(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        RedisBackend(url=url)


def test_sharded_scripts_publish_in_their_slot_only() -> None:
    for name, script in load_scripts(sharded=True).items():
        assert "'PUBLISH'" not in script.source, name
        assert "'NUMSUB'" not in script.source, name
    assert "'SPUBLISH'" in library_source(sharded=True)
    assert "'SPUBLISH'" not in library_source()
