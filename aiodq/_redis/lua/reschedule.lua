-- reschedule: scheduled -> scheduled
-- A waiting job gets another due time, and keeps its number in order; any other is left as it is.
-- KEYS: meta turn schedule processing dead idle done0 done1 done2 order
-- ARGV: call wake
--   call: the caller's call id   wake: prefix of wake channels
-- EACH: ids dues
-- PARTS: version repeat clock due where order watch
-- RETURNS: one letter for each job: where it was: s scheduled (and moved), p processing, d dead, n done, a absent
local answer, scores, earliest = {}, {}, nil
local members = FIFO and members_of(ids) or ids
for i, at in ipairs(redis.call('ZMSCORE', schedule, unpack(members))) do
  if at then
    local due = due_ms(dues[i])
    scores[#scores + 1] = due
    scores[#scores + 1] = members[i]
    answer[i] = 's'
    if not earliest or due < earliest then earliest = due end
  else
    answer[i] = where(ids[i])
  end
end
if earliest then
  redis.call('ZADD', schedule, 'XX', unpack(scores))
  watch(earliest)
end
answer = table.concat(answer)
redis.call('SET', turn, call .. answer, 'EX', 120)
return answer
