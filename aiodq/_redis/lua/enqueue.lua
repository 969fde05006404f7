-- enqueue: absent -> scheduled
-- A new job is written; an existing id is left as it is and its due time told. An id with a done mark counts as
-- existing where its flag is 1. A payload whose job is in no place was left by someone else's hand: it is replaced.
-- KEYS: meta turn schedule payload processing dead lease idle done0 done1 done2 order seq
-- ARGV: call wake max_jobs max_bytes flags
--   call: the caller's call id   wake: prefix of wake channels
--   max_jobs, max_bytes: how many jobs may wait or run, and how much memory payloads may take, or 0
--   flags: "" or one 0/1 for each job: ask for done marks
-- EACH: ids dues bodies
-- PARTS: version repeat bounds clock due marks order number watch
-- RETURNS: 16 characters for each job: 1 created or 0 kept, then the due time of the job that has the id now, ms;
--   at the end 16 more: when this was accepted, µs
local answer, fresh, scores, earliest = {}, {}, {}, nil
local marked = flags ~= '' and done_marks(ids) or {}
for i = 1, count do
  local id, due = ids[i], due_ms(dues[i])
  local kept = string.sub(flags, i, i) == '1' and marked[i]
  if kept or redis.call('HSETNX', payload, id, bodies[i]) == 0 then
    local token = redis.call('HGET', lease, id)
    kept = fresh[id] or redis.call('ZSCORE', schedule, FIFO and members_of({id})[1] or id) or token and string.sub(token, 18, 32)
      or redis.call('ZSCORE', processing, id) or redis.call('ZSCORE', dead, id) or kept
    if not kept then redis.call('HSET', payload, id, bodies[i]) end
  end
  if kept then
    answer[i] = string.format('0%015d', kept)
  else
    answer[i] = string.format('1%015d', due)
    fresh[id] = due
    scores[#scores + 1] = due
    scores[#scores + 1] = id
    if not earliest or due < earliest then earliest = due end
  end
end
if earliest then
  if FIFO then number(scores, true) end
  redis.call('ZADD', schedule, unpack(scores))
  watch(earliest)
end
answer = table.concat(answer) .. string.format('%016d', now_us)
redis.call('SET', turn, call .. answer, 'EX', 120)
return answer
