-- replace: absent -> scheduled, scheduled -> scheduled, dead -> scheduled
-- The job gets these arguments and this due time, its counters and history start anew; one that is being run is kept.
-- In order it comes after all that are there, as a new one would.
-- KEYS: meta turn schedule payload processing dead lease tally idle order seq
-- ARGV: call wake max_jobs max_bytes
--   call: the caller's call id   wake: prefix of wake channels
--   max_jobs, max_bytes: how many jobs may wait or run, and how much memory payloads may take, or 0
-- EACH: ids dues bodies
-- PARTS: version repeat bounds clock due order number forget watch
-- RETURNS: 16 characters for each job: 2 replaced, 1 created or 0 kept, then the due time of the job that has the id, ms;
--   at the end 16 more: when this was accepted, µs
local answer, gone, latest, dues_ms, earliest = {}, {}, {}, {}, nil
for i = 1, count do
  local id, due = ids[i], due_ms(dues[i])
  local held = redis.call('ZSCORE', processing, id)
  if held then
    local token = redis.call('HGET', lease, id)
    answer[i] = string.format('0%015d', token and string.sub(token, 18, 32) or held)
  else
    redis.call('HSET', payload, id, bodies[i])
    local was
    if FIFO then
      was = redis.call('ZREM', schedule, members_of({id})[1]) == 1 or latest[id] ~= nil
      latest[id], dues_ms[i] = i, due
    else
      was = redis.call('ZADD', schedule, due, id) == 0
    end
    if redis.call('ZREM', dead, id) == 1 then was = true end
    answer[i] = string.format(was and '2%015d' or '1%015d', due)
    gone[#gone + 1] = id
    if not earliest or due < earliest then earliest = due end
  end
end
if earliest then
  forget(gone)
  if FIFO then
    local scores = {}
    for i = 1, count do
      if latest[ids[i]] == i then scores[#scores + 1], scores[#scores + 2] = dues_ms[i], ids[i] end
    end
    number(scores, true)
    redis.call('ZADD', schedule, unpack(scores))
  end
  watch(earliest)
end
answer = table.concat(answer) .. string.format('%016d', now_us)
redis.call('SET', turn, call .. answer, 'EX', 120)
return answer
