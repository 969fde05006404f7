-- finished: processing -> absent, scheduled -> absent
-- Runs that ended well, told again by their worker after the server lost its last writes. Under its lease a job ends as by
-- `ack`. If the claim was lost too, the job waits again: it ends if it still has the same payload. It is noted that the
-- job has ended, also when it is not there (any more, or yet). One that another claim holds, or that is dead, is left.
-- KEYS: meta turn schedule processing lease payload tally done0 done1 done2 past0 past1 past2 order
-- ARGV: call flags window_ms replay_ms
--   call: the caller's call id   flags: "" or one 0/1 for each job: leave a done mark   window_ms: how long done marks count
--   replay_ms: how long it is noted that the job has ended
-- EACH: ids tokens shas times
--   shas: SHA-1 of the payload that was run, hex   times: when the ack was accepted, µs; 0: it was not
-- PARTS: drain version repeat clock token ended order forget ring
-- RETURNS: one character for each job: 1 (ended now), 2 (it had ended, or was not there) or 0 (left as it is)
local known, gone, ends, marks = ended_at(ids), {}, {}, {}
local members = FIFO and members_of(ids) or ids
for i, id in ipairs(ids) do
  local waits = bits[i] == '0' and redis.call('ZSCORE', schedule, members[i])
  if known[i] > tonumber(string.sub(tokens[i], 1, 16)) then
    bits[i] = '2'
  elseif waits and redis.sha1hex(redis.call('HGET', payload, id) or '') == shas[i] then
    bits[i] = '1'
  elseif bits[i] == '0' and redis.call('HEXISTS', payload, id) == 0 then
    bits[i] = '2'
    ends[#ends + 1] = id
    ends[#ends + 1] = times[i] == '0' and string.format('%d', now_us) or times[i]
  end
  if bits[i] == '1' then
    redis.call('ZREM', schedule, members[i])
    redis.call('ZREM', processing, id)
    gone[#gone + 1] = id
    ends[#ends + 1] = id
    ends[#ends + 1] = times[i] == '0' and string.format('%d', now_us) or times[i]
  end
  if bits[i] ~= '0' and string.sub(flags, i, i) == '1' then
    marks[#marks + 1] = id
    marks[#marks + 1] = string.sub(tokens[i], 18, 32)
  end
end
if #gone > 0 then
  redis.call('HDEL', lease, unpack(gone))
  redis.call('HDEL', payload, unpack(gone))
  forget(gone)
end
if #ends > 0 then put_marks({past0, past1, past2}, replay_ms, now_ms, ends) end
if #marks > 0 then put_marks({done0, done1, done2}, window_ms, now_ms, marks) end
local answer = table.concat(bits)
redis.call('SET', turn, call .. answer, 'EX', 120)
return answer
