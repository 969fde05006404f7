-- bury: processing -> dead
-- The job goes to the dead letters, with the counters, history and reason given.
-- KEYS: meta turn processing lease dead tally workers
-- ARGV: call worker last
--   call, worker: the caller's call id and id   last: 1: the worker holds no lease after this
-- EACH: ids tokens histories
-- PARTS: drain version repeat clock token leave_processing
-- RETURNS: one 1 (accepted) or 0 (the lease has passed to another) for each job
local scores, fields = {}, {}
for _, i in ipairs(mine) do
  scores[#scores + 1] = now_ms
  scores[#scores + 1] = ids[i]
  fields[#fields + 1] = 't:' .. ids[i]
  fields[#fields + 1] = histories[i]
end
leave_processing()
if #scores > 0 then
  redis.call('ZADD', dead, unpack(scores))
  redis.call('HSET', tally, unpack(fields))
end
local answer = table.concat(bits)
redis.call('SET', turn, call .. answer, 'EX', 120)
return answer
