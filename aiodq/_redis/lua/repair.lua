-- repair: scheduled -> absent, processing -> absent, dead -> absent, processing -> scheduled, absent -> processing
-- Mends jobs that contradict themselves, one fault of each a call, and leaves all others alone. Of two places a run that
-- is held counts, then the schedule. A place without a payload goes; a run without a lease waits again, due now; a lease
-- whose run is missing gets it back for as long as the lease is, and one that belongs to nothing goes.
-- KEYS: meta schedule processing dead payload lease tally idle order seq
-- ARGV: wake
--   wake: prefix of wake channels
-- EACH: ids
-- PARTS: drain version clock order number diagnose forget watch
-- RETURNS: one letter for each job: the fault that was mended, or -
local faults, _, tokens = diagnose(ids)
local members, earliest = FIFO and members_of(ids) or ids, nil
for i, id in ipairs(ids) do
  local fault = faults[i]
  if fault == 'u' then
    local entry = {now_ms, id}
    if FIFO then number(entry) end
    redis.call('ZADD', schedule, unpack(entry))
    earliest = now_ms
  elseif fault == 'l' then
    local lapse = now_ms + tonumber(string.sub(tokens[i], 34, 41))
    redis.call('ZADD', processing, lapse, id)
    earliest = math.min(earliest or lapse, lapse)
  elseif fault == 'h' or fault == 'o' then
    faults[i] = '-'
  end
  if fault == 'p' or fault == 'm' then redis.call('ZREM', schedule, members[i]) end
  if fault == 's' or fault == 'm' or fault == 'u' then redis.call('ZREM', processing, id) end
  if fault == 'p' or fault == 's' or fault == 'm' then redis.call('ZREM', dead, id) end
  if string.find('smux', fault, 1, true) then redis.call('HDEL', lease, id) end
  if fault == 'm' or fault == 't' then forget({id}) end
end
if earliest then watch(earliest) end
return table.concat(faults)
