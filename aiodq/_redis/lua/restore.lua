-- restore: absent -> scheduled
-- A payload that is in no place, left by someone else's hand, becomes a job again, due now, if it is still that payload.
-- KEYS: meta schedule processing dead payload lease tally idle order seq
-- ARGV: wake
--   wake: prefix of wake channels
-- EACH: ids shas
-- PARTS: drain version clock order number diagnose watch
-- RETURNS: one 1 (scheduled) or 0 for each job
local faults, bits, scores = diagnose(ids), {}, {}
for i, id in ipairs(ids) do
  bits[i] = '0'
  if faults[i] == 'o' and redis.sha1hex(redis.call('HGET', payload, id)) == shas[i] then
    bits[i] = '1'
    scores[#scores + 1] = now_ms
    scores[#scores + 1] = id
    redis.call('HDEL', lease, id)
  end
end
if #scores > 0 then
  if FIFO then number(scores) end
  redis.call('ZADD', schedule, unpack(scores))
  watch(now_ms)
end
return table.concat(bits)
