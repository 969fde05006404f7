-- admit: Books time of rates' buckets: from when a bucket is free, and for as long as asked.
-- Of the buckets whose time has passed some are forgotten, so that at most about as many are kept as are in use.
-- KEYS: meta turn lease rate
-- ARGV: call
--   call: the caller's call id
-- EACH: buckets widths
--   buckets: their names, no two alike   widths: how long, µs
-- PARTS: drain version repeat clock
-- RETURNS: 16 characters: the time now, µs; then 16 for each bucket: from when its time is the caller's, µs
local answer, fields, farthest = {string.format('%016d', now_us)}, {}, now_us
for i, until_us in ipairs(count > 0 and redis.call('HMGET', rate, unpack(buckets)) or {}) do
  local begins = math.max(tonumber(until_us or 0), now_us)
  local ends = math.min(begins + tonumber(widths[i]), FARTHEST_US)
  answer[i + 1] = string.format('%016d', begins)
  fields[i * 2 - 1], fields[i * 2] = buckets[i], string.format('%d', ends)
  farthest = math.max(farthest, ends)
end
if count > 0 then
  redis.call('HSET', rate, unpack(fields))
  local needed_ms = math.ceil((farthest - now_us) / 1000)
  if redis.call('PTTL', rate) < needed_ms then redis.call('PEXPIRE', rate, needed_ms + 60000) end
  if redis.call('HLEN', rate) > 100 then
    local some, gone = redis.call('HRANDFIELD', rate, -2 * count, 'WITHVALUES'), {}
    for n = 1, #some, 2 do
      if tonumber(some[n + 1]) <= now_us then gone[#gone + 1] = some[n] end
    end
    if #gone > 0 then redis.call('HDEL', rate, unpack(gone)) end
  end
end
answer = table.concat(answer)
redis.call('SET', turn, call .. answer, 'EX', 120)
return answer
