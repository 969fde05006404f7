-- unite: absent -> scheduled, scheduled -> scheduled
-- As enqueue, but while a job of the same name waits or runs, and its window lasts, no new one is made: it is left as it
-- is, or, if it waits and the mode is "last", gets these arguments and this due time, or the end of its window if that
-- comes first; its counters and history start anew. Beside one that runs, that mode makes a new one.
-- KEYS: meta turn schedule payload processing dead lease tally idle unique order seq
-- ARGV: call wake max_jobs max_bytes
--   call: the caller's call id   wake: prefix of wake channels
--   max_jobs, max_bytes: how many jobs may wait or run, and how much memory payloads may take, or 0
-- EACH: ids dues bodies names windows modes
--   names: what the jobs are unique by   windows: ms   modes: "first" or "last"
-- PARTS: version repeat bounds clock due order number watch
-- RETURNS: 16 characters for each job: 2 replaced, 1 created or 0 kept, then the due time of the job that is there now,
--   ms; 16 more: when this was accepted, µs; then the ids of those jobs, each after a line break
local function waits(id) return redis.call('ZSCORE', schedule, FIFO and members_of({id})[1] or id) end

local function due_of(id)
  local token = redis.call('HGET', lease, id)
  return waits(id) or token and string.sub(token, 18, 32) or redis.call('ZSCORE', processing, id)
end

local answer, there, earliest, farthest = {}, {}, nil, now_ms
for i = 1, count do
  local id, due, said, till, kept = ids[i], due_ms(dues[i]), '1', now_ms + tonumber(windows[i]), nil
  local held = redis.call('HGET', unique, names[i])
  local other = held and tonumber(string.sub(held, 1, 15)) > now_ms and string.sub(held, 16)
  if redis.call('HEXISTS', payload, id) == 1 then
    kept = due_of(id) or redis.call('ZSCORE', dead, id)
    if kept then said, due = '0', kept end
  elseif other and redis.call('HEXISTS', payload, other) == 1 then
    kept = due_of(other)
    if kept and modes[i] == 'first' then
      id, said, due = other, '0', kept
    elseif kept and waits(other) then
      id, said, till = other, '2', tonumber(string.sub(held, 1, 15))
      due = math.min(due, till)
    end
  end
  if said ~= '0' then
    redis.call('HSET', payload, id, bodies[i])
    if said == '2' then redis.call('HDEL', tally, 't:' .. id, 'c:' .. id, 'i:' .. id) end
    local scores = {due, id}
    if FIFO then number(scores, true) end
    redis.call('ZADD', schedule, unpack(scores))
    redis.call('HSET', unique, names[i], string.format('%015d', till) .. id)
    farthest = math.max(farthest, till)
    if not earliest or due < earliest then earliest = due end
  end
  answer[i], there[i] = string.format(said .. '%015d', due), id
end
if earliest then
  local needed_ms = farthest - now_ms
  if redis.call('PTTL', unique) < needed_ms then redis.call('PEXPIRE', unique, needed_ms + 60000) end
  if redis.call('HLEN', unique) > 100 then
    local some, gone = redis.call('HRANDFIELD', unique, -2 * count, 'WITHVALUES'), {}
    for n = 1, #some, 2 do
      if tonumber(string.sub(some[n + 1], 1, 15)) <= now_ms then gone[#gone + 1] = some[n] end
    end
    if #gone > 0 then redis.call('HDEL', unique, unpack(gone)) end
  end
  watch(earliest)
end
answer = table.concat(answer) .. string.format('%016d', now_us)
if count > 0 then answer = answer .. '\n' .. table.concat(there, '\n') end
redis.call('SET', turn, call .. answer, 'EX', 120)
return answer
