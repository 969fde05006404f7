-- cancel: scheduled -> absent
-- A waiting job is removed; any other is left as it is.
-- KEYS: meta turn schedule payload processing dead lease tally done0 done1 done2 past0 past1 past2 order
-- ARGV: call replay_ms
--   call: the caller's call id
--   replay_ms: 0, or how long it is noted that the job has ended, for enqueues sent again after a failover
-- EACH: ids
-- PARTS: drain version repeat where order forget moment ring past
-- RETURNS: one letter for each job: where it was: s scheduled (and removed), p processing, d dead, n done, a absent
local answer, gone, leaving = {}, {}, {}
local members = FIFO and members_of(ids) or ids
for i, at in ipairs(redis.call('ZMSCORE', schedule, unpack(members))) do
  if at then
    gone[#gone + 1], leaving[#leaving + 1] = ids[i], members[i]
    answer[i] = 's'
  else
    answer[i] = where(ids[i])
  end
end
if #gone > 0 then
  redis.call('ZREM', schedule, unpack(leaving))
  redis.call('HDEL', payload, unpack(gone))
  forget(gone)
  if replay_ms ~= '0' then note_past(gone, moment()) end
end
answer = table.concat(answer)
redis.call('SET', turn, call .. answer, 'EX', 120)
return answer
