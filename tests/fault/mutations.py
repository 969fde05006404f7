"""Broken scripts and workers: one safeguard taken out, to show that the tests would notice."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Final
from unittest.mock import patch

from msgspec import Struct

from aiodq._redis.link import Backoff
from aiodq._redis.scripts import Script, load_scripts


class Mutation(Struct, frozen=True):
    """Replaces `old` by `new` in every script that has it, or only in `script`."""

    says: str
    old: str
    new: str
    script: str | None = None


MUTATIONS: Final[dict[str, Mutation]] = {
    "no fence": Mutation(
        "a write is accepted whoever holds the job", "if stored[i] == tokens[i] then", "if stored[i] then"
    ),
    "claim in two steps": Mutation(
        "a claim takes what an earlier one has read, as if reading and taking were two calls",
        "redis.call('ZRANGEBYSCORE', schedule, '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, want)",
        "(function() local read = redis.call('GET', wake .. 'read') "
        "local fresh = redis.call('ZRANGEBYSCORE', schedule, '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, want) "
        "redis.call('SET', wake .. 'read', cmsgpack.pack(fresh), 'EX', 1) "
        "return read and cmsgpack.unpack(read) or fresh end)()",
        "claim",
    ),
    "claim without leaving the schedule": Mutation(
        "a claimed job can be claimed again",
        "if #ids > lapsed then redis.call('ZREMRANGEBYRANK'",
        "if false then redis.call('ZREMRANGEBYRANK'",
    ),
    "pop, then push": Mutation(
        "a retry takes the job out, and dies before it is put in again",
        "  redis.call('ZADD', schedule, unpack(scores))\n",
        "  if true then return table.concat(bits) end\n",
        "retry",
    ),
    "no recovery": Mutation(
        "expired leases are never taken",
        "local expired_wait = hold_ms == 0 and",
        "local expired_wait = false and",
    ),
    "no due time": Mutation(
        "a claim takes jobs before they are due",
        "if want > 0 and (expired_wait or due_at and due_at <= now_ms) then\n"
        "  local holders, due = {}, redis.call('ZRANGEBYSCORE', schedule, '-inf', now_ms,",
        "if want > 0 and (expired_wait or due_at) then\n"
        "  local holders, due = {}, redis.call('ZRANGEBYSCORE', schedule, '-inf', '+inf',",
        "claim",
    ),
    "no repeat record": Mutation(
        "a repeated call is carried out again",
        "if latest == call then return string.sub(record, 9) end",
        "",
    ),
    "payload left behind": Mutation(
        "an ack forgets the payload", "  redis.call('HDEL', payload, unpack(gone))\n", "", "ack"
    ),
    "same fence": Mutation(
        "claims do not get numbers of their own",
        "local fence_no = now_us",
        "local fence_no = 1796000000000000",
    ),
}

FALLBACK: Final = Mutation(
    "a sleeping worker relies on notices: it never looks by itself",
    "earlier(earlier(due_at, lapse_at), now_ms + cap_ms)",
    "earlier(earlier(due_at, lapse_at), now_ms + 86400000)",
    "claim",
)
"""Not among the others: the checker of histories has no opinion about late starts."""


class _Deaf(Backoff):
    """Waits for a day before it tries again."""

    def next_s(self) -> float:
        return 86_400.0


@contextmanager
def no_subscribing_again() -> Generator[None]:
    """Meanwhile, a worker that loses its subscriber connection never makes another."""
    with patch("aiodq._redis.ears.Backoff", _Deaf):
        yield


def safeguards() -> Mapping[str, Callable[[], AbstractContextManager[None]]]:
    """Every mutation by its name, as a context in which it holds for this process."""
    scripts = {**MUTATIONS, "no fallback claim": FALLBACK}
    return {
        **{name: partial(broken, mutation) for name, mutation in scripts.items()},
        "no subscribing again": no_subscribing_again,
    }


def mutated(mutation: Mutation) -> Mapping[str, Script]:
    """All scripts, with the mutation in. AssertionError when it fits nowhere (any more)."""
    scripts = dict(load_scripts())
    changed = 0
    for name, script in scripts.items():
        if mutation.script in (None, name) and mutation.old in script.source:
            source = script.source.replace(mutation.old, mutation.new)
            scripts[name] = Script(
                script.header, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
            )
            changed += 1
    assert changed, f"the mutation {mutation.says!r} fits no script: mend its text"
    return scripts


@contextmanager
def broken(mutation: Mutation) -> Generator[None]:
    """Meanwhile, callers made in this process send the broken scripts."""
    scripts = mutated(mutation)

    def ours(**_: bool) -> Mapping[str, Script]:
        return scripts

    with (
        patch("aiodq._redis.calls.load_scripts", ours),
        patch("tests.fault.resp.load_scripts", lambda: scripts),
    ):
        yield
