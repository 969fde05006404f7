-- vacate: scheduled -> scheduled
-- Jobs that had a permit among those of a name, or asked for one, have left processing: their permits are free, and the first
-- that wait for one are due at their own due times again. A job that is being run, by whomever, keeps its permit; one that
-- was given another due time since it waits is left alone.
-- KEYS: meta turn lease processing schedule permits waiting idle order seq
-- ARGV: call wake
--   call: the caller's call id   wake: prefix of wake channels
-- EACH: ids names limits
--   names: what the limits are on   limits: how many of that name
-- PARTS: drain version repeat clock order number of_name watch
-- RETURNS: how many jobs were let go on
local moved, earliest = 0, nil
for i = 1, count do
  local name = names[i]
  if not redis.call('ZSCORE', processing, ids[i]) then redis.call('ZREM', permits, name .. '\0' .. ids[i]) end
  local room, first = tonumber(limits[i]) - taken(name), {}
  if room > 0 then
    first = redis.call('ZRANGEBYLEX', waiting, '[' .. name .. '\0', '(' .. name .. '\1', 'LIMIT', 0, 10)
  end
  for _, member in ipairs(first) do
    local due, id = tonumber(string.sub(member, #name + 2, #name + 16)), string.sub(member, #name + 34)
    local again, entry = string.sub(member, #name + 18, #name + 32), {due, id}
    local at = redis.call('ZSCORE', schedule, FIFO and members_of({id})[1] or id)
    if at and room > 0 and tonumber(at) == tonumber(again) then
      if FIFO then number(entry) end
      redis.call('ZADD', schedule, unpack(entry))
      moved, room, earliest = moved + 1, room - 1, math.min(earliest or due, due)
      redis.call('ZREM', waiting, member)
    elseif tonumber(at or 0) ~= tonumber(again) and not redis.call('ZSCORE', processing, id) then
      redis.call('ZREM', waiting, member)
    end
  end
end
if earliest then watch(math.max(earliest, now_ms)) end
redis.call('SET', turn, call .. moved, 'EX', 120)
return tostring(moved)
