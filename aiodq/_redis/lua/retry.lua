-- retry: processing -> scheduled
-- The job waits again until its new due time, with the counters and history given.
-- KEYS: meta turn processing lease schedule tally workers idle order seq
-- ARGV: call worker last wake
--   call, worker: the caller's call id and id   last: 1: the worker holds no lease after this   wake: prefix of wake channels
-- EACH: ids tokens dues histories
-- PARTS: drain version repeat clock due token leave_processing number watch
-- RETURNS: one 1 (accepted) or 0 (the lease has passed to another) for each job
local scores, fields, earliest = {}, {}, nil
for _, i in ipairs(mine) do
  local due = due_ms(dues[i])
  scores[#scores + 1] = due
  scores[#scores + 1] = ids[i]
  fields[#fields + 1] = 't:' .. ids[i]
  fields[#fields + 1] = histories[i]
  if not earliest or due < earliest then earliest = due end
end
leave_processing()
if earliest then
  if FIFO then number(scores) end
  redis.call('ZADD', schedule, unpack(scores))
  redis.call('HSET', tally, unpack(fields))
  watch(earliest)
end
local answer = table.concat(bits)
redis.call('SET', turn, call .. answer, 'EX', 120)
return answer
