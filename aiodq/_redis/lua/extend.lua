-- extend: processing -> processing
-- Sets the leases' deadline to now + lease_ms, later or earlier; also the worker's sign of life.
-- KEYS: meta processing lease workers
-- ARGV: worker wake lease_ms
--   worker: the holder   wake: prefix of wake channels   lease_ms: length of the leases
-- EACH: ids tokens
-- PARTS: drain version clock token
-- RETURNS: one 1 (extended) or 0 (the lease has passed to another) for each job
local scores = {}
for _, i in ipairs(mine) do
  scores[#scores + 1] = now_ms + lease_ms
  scores[#scores + 1] = ids[i]
end
if #scores > 0 then
  redis.call('ZADD', processing, unpack(scores))
  local heard = redis.pcall('PUBSUB', NUMSUB, wake .. worker)
  if not heard.err and heard[2] > 0 then
    redis.call('ZADD', workers, now_ms, worker)
    redis.call('EXPIRE', workers, 86400)
  else
    -- Alive, as this call shows, though its channel is silent: not to be judged by it.
    redis.call('ZREM', workers, worker)
  end
end
return table.concat(bits)
