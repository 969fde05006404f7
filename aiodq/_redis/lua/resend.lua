-- resend: absent -> scheduled
-- Enqueues of the last seconds, sent again by their producer after the server lost its last writes. A job that is in any
-- place is left as it is, and so is one that has ended since its enqueue was accepted.
-- KEYS: meta turn schedule processing payload idle done0 done1 done2 past0 past1 past2 order seq
-- ARGV: call wake flags
--   call: the caller's call id   wake: prefix of wake channels   flags: "" or one 0/1 for each job: ask for done marks
-- EACH: ids dues accepted bodies
--   accepted: when the server took the enqueue in, µs
-- PARTS: version repeat clock due marks ended number watch
-- RETURNS: one 1 (it was missing, and is scheduled) or 0 for each job
local bits, scores, earliest = {}, {}, nil
local ended = ended_at(ids)
local marked = flags ~= '' and done_marks(ids) or {}
for i = 1, count do
  local over = ended[i] > tonumber(accepted[i]) or string.sub(flags, i, i) == '1' and marked[i]
  if over or redis.call('HSETNX', payload, ids[i], bodies[i]) == 0 then
    bits[i] = '0'
  else
    local due = due_ms(dues[i])
    bits[i] = '1'
    scores[#scores + 1] = due
    scores[#scores + 1] = ids[i]
    if not earliest or due < earliest then earliest = due end
  end
end
if earliest then
  if FIFO then number(scores, true) end
  redis.call('ZADD', schedule, unpack(scores))
  watch(earliest)
end
local answer = table.concat(bits)
redis.call('SET', turn, call .. answer, 'EX', 120)
return answer
