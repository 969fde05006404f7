"""The barest: not our protocol, but the least that a delay queue on a sorted set can do. A job is a score and
a body; nothing tells who holds it, an ack removes it whoever sends it, and any repeat runs it again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.contenders.protocol import serve
from benchmarks.contenders.raw import Future, Raw

CAP_S = 5.0

CLOCK = """
local t = redis.call('TIME')
local now_us = t[1] * 1000000 + t[2]
local now = math.floor(now_us / 1000)
"""
ENQUEUE = (
    CLOCK
    + """
local scores, bodies, first = {}, {}, nil
for i = 2, #ARGV, 3 do
  local due = tonumber(ARGV[i + 1])
  if string.byte(ARGV[i + 1]) == 43 then due = now + due end
  if not first or due < first then first = due end
  scores[#scores + 1] = due
  scores[#scores + 1] = ARGV[i]
  bodies[#bodies + 1] = ARGV[i]
  bodies[#bodies + 1] = ARGV[i + 2]
end
redis.call('ZADD', KEYS[1], unpack(scores))
redis.call('HSET', KEYS[2], unpack(bodies))
local head = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if tonumber(head[2]) >= first then redis.call('PUBLISH', ARGV[1], math.max(0, first - now)) end
"""
)
CLAIM = (
    CLOCK
    + """
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
if #ids == 0 then
  local head = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
  return {head and head * 1000 - now_us or -1, {}, {}}
end
local held = {}
for i = 1, #ids do held[i * 2 - 1], held[i * 2] = now, ids[i] end
redis.call('ZREM', KEYS[1], unpack(ids))
redis.call('ZADD', KEYS[3], unpack(held))
return {0, ids, redis.call('HMGET', KEYS[2], unpack(ids))}
"""
)
ACK = """
redis.call('ZREM', KEYS[3], unpack(ARGV))
redis.call('HDEL', KEYS[2], unpack(ARGV))
"""


class Bare(Raw):
    async def deploy(self) -> None:
        base = f"{{{self.setup.name}}}:"
        keys = tuple(base + name for name in ("schedule", "payload", "processing"))
        self.channel = base + "wake"
        self.calls: dict[str, tuple[object, ...]] = {}
        for name, text in (("enqueue", ENQUEUE), ("claim", CLAIM), ("ack", ACK)):
            self.calls[name] = ("EVALSHA", await self.wire.call("SCRIPT", "LOAD", text), 3, *keys)

    def send_jobs(self, fields: list[str | bytes]) -> Future:
        return self.wire.call(*self.calls["enqueue"], self.channel, *fields)

    def send_claim(self, want: int) -> Future:
        return self.wire_of_worker.call(*self.calls["claim"], want)

    def read_claim(self, reply: Any) -> tuple[float, Iterable[tuple[bytes, bytes, Any]]]:
        wait_us, ids, payloads = reply
        wait_s = CAP_S if wait_us < 0 else min(CAP_S, wait_us / 1e6)
        return wait_s, zip(ids, payloads, ids, strict=True)

    def send_acks(self, ended: list[Any]) -> None:
        self.wire_of_worker.call(*self.calls["ack"], *(job_id for job_id, _ in ended))

    def channels(self) -> tuple[str, ...]:
        return (self.channel,)

    def wait_s(self, notice: bytes) -> float:
        return float(notice) / 1000


if __name__ == "__main__":
    serve(Bare)
