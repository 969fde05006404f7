-- stats: the counts of this shard.
-- KEYS: meta schedule processing dead idle workers
-- ARGV:
-- PARTS: version clock
-- RETURNS: now ms, due, scheduled, processing, expired leases, dead, overdue ms of the first, idle, holders, reason of the pause or nil
local overdue = 0
local head = redis.call('ZRANGE', schedule, 0, 0, 'WITHSCORES')[2]
if head and tonumber(head) < now_ms then overdue = now_ms - head end
return {now_ms, redis.call('ZCOUNT', schedule, '-inf', now_ms), redis.call('ZCARD', schedule),
  redis.call('ZCARD', processing), redis.call('ZCOUNT', processing, '-inf', now_ms), redis.call('ZCARD', dead),
  overdue, redis.call('ZCARD', idle), redis.call('ZCARD', workers), exceptions[2]}
