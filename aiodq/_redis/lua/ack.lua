-- ack: processing -> absent
-- The job ended well, or had expired unrun. Where its flag is 1 it leaves a done mark for the de-duplication window.
-- KEYS: meta turn processing lease payload tally workers done0 done1 done2 past0 past1 past2 order
-- ARGV: call worker last flags window_ms replay_ms
--   call, worker: the caller's call id and id   last: 1: the worker holds no lease after this
--   flags: "" or one 0/1 for each job: leave a done mark   window_ms: how long done marks count
--   replay_ms: 0, or how long it is noted that the job has ended, for enqueues sent again after a failover
-- EACH: ids tokens
-- PARTS: drain version repeat token leave_processing order forget moment ring past
-- RETURNS: one 1 (accepted) or 0 (the lease has passed to another) for each job; with replay_ms, 16 characters more:
--   when that was, µs
local gone = leave_processing()
if #gone > 0 then
  redis.call('HDEL', payload, unpack(gone))
  forget(gone)
end
local at_us = (flags ~= '' or replay_ms ~= '0') and moment()
if flags ~= '' then
  local marks = {}
  for _, i in ipairs(mine) do
    if string.sub(flags, i, i) == '1' then
      marks[#marks + 1] = ids[i]
      marks[#marks + 1] = string.sub(tokens[i], 18, 32)
    end
  end
  if #marks > 0 then put_marks({done0, done1, done2}, window_ms, at_us / 1000, marks) end
end
if replay_ms ~= '0' then note_past(gone, at_us) end
local answer = table.concat(bits)
if replay_ms ~= '0' then answer = answer .. string.format('%016d', at_us) end
redis.call('SET', turn, call .. answer, 'EX', 120)
return answer
