-- replay: dead -> scheduled
-- A dead letter is scheduled again, if it is still the one that was read (buried at that time) and its payload is there.
-- Its crash and interruption counts are dropped; its history is replaced by the one given.
-- KEYS: meta turn dead schedule processing payload tally idle order seq
-- ARGV: call wake
--   call: the caller's call id   wake: prefix of wake channels
-- EACH: ids buried dues histories
-- PARTS: version repeat clock due number watch
-- RETURNS: one 1 (scheduled) or 0 for each job
local answer, earliest = {}, nil
for i = 1, count do
  local id = ids[i]
  local since = redis.call('ZSCORE', dead, id)
  if since and tonumber(since) == tonumber(buried[i]) and redis.call('HEXISTS', payload, id) == 1 then
    local due = due_ms(dues[i])
    local entry = {due, id}
    if FIFO then number(entry) end
    redis.call('ZADD', schedule, unpack(entry))
    redis.call('ZREM', dead, id)
    redis.call('HDEL', tally, 'c:' .. id, 'i:' .. id)
    redis.call('HSET', tally, 't:' .. id, histories[i])
    answer[i] = '1'
    if not earliest or due < earliest then earliest = due end
  else
    answer[i] = '0'
  end
end
if earliest then watch(earliest) end
answer = table.concat(answer)
redis.call('SET', turn, call .. answer, 'EX', 120)
return answer
