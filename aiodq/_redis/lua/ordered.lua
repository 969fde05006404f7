-- ordered: an empty queue becomes first in, first out, for good.
-- KEYS: meta schedule processing dead payload
-- ARGV:
-- PARTS:
-- RETURNS: 1, or 0: it holds jobs that came in no order
local known = redis.call('HMGET', meta, 'v', 'fifo')
if known[1] and tonumber(known[1]) > VERSION then return redis.error_reply('NEWER ' .. known[1]) end
if known[2] then return 1 end
if redis.call('EXISTS', schedule, processing, dead, payload) > 0 then return 0 end
redis.call('HSET', meta, 'fifo', '1')
return 1
