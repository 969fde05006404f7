-- trim: dead -> absent
-- Removes the oldest dead letters: those buried more than age_ms ago, then those above `most`; at most `limit` a call.
-- KEYS: meta dead payload lease tally order
-- ARGV: age_ms most limit
--   age_ms: milliseconds   most: how many may stay   limit: how many this call may remove, at most 100
-- PARTS: drain version clock order forget
-- RETURNS: how many were removed
local old = redis.call('ZCOUNT', dead, '-inf', now_ms - age_ms)
local above = redis.call('ZCARD', dead) - most
local n = math.min(limit, math.max(old, above))
if n <= 0 then return 0 end
local gone = redis.call('ZRANGE', dead, 0, n - 1)
redis.call('ZREM', dead, unpack(gone))
redis.call('HDEL', payload, unpack(gone))
forget(gone)
return #gone
