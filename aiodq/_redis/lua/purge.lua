-- purge: dead -> absent
-- Removes dead letters by id.
-- KEYS: meta turn dead payload lease tally order
-- ARGV: call
--   call: the caller's call id
-- EACH: ids
-- PARTS: drain version repeat order forget
-- RETURNS: one 1 (removed) or 0 (was not dead) for each job
local answer, gone = {}, {}
for i, since in ipairs(redis.call('ZMSCORE', dead, unpack(ids))) do
  answer[i] = since and '1' or '0'
  if since then gone[#gone + 1] = ids[i] end
end
if #gone > 0 then
  redis.call('ZREM', dead, unpack(gone))
  redis.call('HDEL', payload, unpack(gone))
  forget(gone)
end
answer = table.concat(answer)
redis.call('SET', turn, call .. answer, 'EX', 120)
return answer
