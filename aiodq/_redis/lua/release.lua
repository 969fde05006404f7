-- release: processing -> scheduled
-- The job is given back uncounted, at its own due time.
-- KEYS: meta turn processing lease schedule workers idle order seq
-- ARGV: call worker last wake
--   call, worker: the caller's call id and id   last: 1: the worker holds no lease after this   wake: prefix of wake channels
-- EACH: ids tokens
-- PARTS: drain version repeat clock token leave_processing number watch
-- RETURNS: one 1 (accepted) or 0 (the lease has passed to another) for each job
local scores, earliest = {}, nil
for _, i in ipairs(mine) do
  local due = tonumber(string.sub(tokens[i], 18, 32))
  scores[#scores + 1] = due
  scores[#scores + 1] = ids[i]
  if not earliest or due < earliest then earliest = due end
end
leave_processing()
if earliest then
  if FIFO then number(scores) end
  redis.call('ZADD', schedule, unpack(scores))
  watch(math.max(earliest, now_ms))
end
local answer = table.concat(bits)
redis.call('SET', turn, call .. answer, 'EX', 120)
return answer
