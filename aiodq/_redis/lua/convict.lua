-- convict: processing -> processing
-- The leases of a worker whose channel is silent, and has been for the grace, expire now; `claim` then takes them by
-- its one path. One page of the leases a call, latest deadline first.
-- KEYS: meta processing lease workers
-- ARGV: suspect wake grace_ms from
--   suspect: the worker   wake: prefix of wake channels   grace_ms: how long silence is forgiven   from: where the page begins
-- PARTS: drain version clock
-- RETURNS: where the next page begins, -1: no more, or -2: not guilty; and how many leases this page made expire
local sign = tonumber(redis.call('ZSCORE', workers, suspect) or 0)
local heard = redis.pcall('PUBSUB', NUMSUB, wake .. suspect)
if sign >= 0 or heard.err or heard[2] > 0 or now_ms + sign < tonumber(grace_ms) then return {-2, 0} end
local page = redis.call('ZREVRANGE', processing, from, from + 199)
if #page == 0 then return {-1, 0} end
local scores = {}
for i, token in ipairs(redis.call('HMGET', lease, unpack(page))) do
  if token and string.sub(token, 43, 62) == suspect and redis.call('ZSCORE', processing, page[i]) + 0 > now_ms then
    scores[#scores + 1] = now_ms
    scores[#scores + 1] = page[i]
  end
end
if #scores > 0 then redis.call('ZADD', processing, 'XX', unpack(scores)) end
local pulled = #scores / 2
if #page < 200 then return {-1, pulled} end
return {from + 200 - pulled, pulled}
