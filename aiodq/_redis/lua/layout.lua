-- layout: into how many shards the queue is divided; an empty one becomes divided, once and for all.
-- KEYS: meta schedule processing dead payload
-- ARGV: shards
--   shards: how many the caller wants
-- PARTS:
-- RETURNS: how many shards it has; 0: it holds jobs that are in none
local known = redis.call('HMGET', meta, 'v', 'shards')
if known[1] and tonumber(known[1]) > VERSION then return redis.error_reply('NEWER ' .. known[1]) end
if known[2] then return tonumber(known[2]) end
if redis.call('EXISTS', schedule, processing, dead, payload) > 0 then return 0 end
redis.call('HSET', meta, 'shards', shards)
return tonumber(shards)
