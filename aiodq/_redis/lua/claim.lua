-- claim: scheduled -> processing, processing -> processing
-- Hands out due jobs, and first those whose lease has expired (at most half of the batch while due jobs wait), under a
-- new fence. With slots left, the worker takes a seat and is told how long to sleep; full, it gives its seat up and
-- wakes somebody else. Only a steady caller takes expired leases, and none does in a call that finds the clock stepped.
-- KEYS: meta turn schedule processing payload lease tally fence idle workers
-- ARGV: call worker last wake want lease_ms max_bytes expected_us steady_in_ms far_permille clamp_from clear_ms cap_ms
--   call, worker: the caller's call id and id   last: 1: it holds no lease any more, but is listed as a holder
--   wake: prefix of wake channels   want: how many jobs, at most 100
--   lease_ms: length of the leases   max_bytes: budget for payloads   expected_us: server time the caller expects, or -1
--   steady_in_ms: 0, or the time until the caller may take expired leases   far_permille: 1000 to 2000
--   clamp_from: where to go on with pulling leases in, or -1   clear_ms: a time when none had expired, or -1
--   cap_ms: the longest sleep in a seat
-- PARTS: drain version clock watch heads recover clamp lift seat bodies give extras again
-- RETURNS: now us, wait us (-1: full or nothing wanted), seat, other holders, flags (1 paused, 2 deaf, 4 stepped,
--   8 clear), next clamp_from, fence, ids, payloads, due times ms, extras, how many of the ids were taken over from an
--   expired lease
want, lease_ms, max_bytes, expected_us = tonumber(want), tonumber(lease_ms), tonumber(max_bytes), tonumber(expected_us)
steady_in_ms, clamp_from, clear_ms = tonumber(steady_in_ms), tonumber(clamp_from), tonumber(clear_ms)
cap_ms = tonumber(cap_ms)

local record = redis.call('GET', turn)
local latest = record and string.sub(record, 1, 8) or call
if latest > call then return redis.error_reply('STALE ' .. call .. ' after ' .. latest) end
if record and latest == call then
  local ids, dues, bodies, fence_no = again(string.sub(record, 9))
  return {now_us, -1, 0, 0, 0, clamp_from, fence_no, ids, bodies, dues, extras_of(ids), 0}
end

local behind = now_us < expected_us - CLOCK_STEP_US
local stepped = behind or expected_us >= 0 and now_us > expected_us + CLOCK_STEP_US
if expected_us < 0 or behind then clamp_from = 0 end
if clamp_from >= 0 then clamp_from = clamp(clamp_from) end
redis.call('ZREM', idle, worker)
if last == '1' then redis.call('ZREM', workers, worker) end
if exceptions[2] then
  redis.call('SET', turn, call, 'EX', 120)
  if stepped then redis.pcall(PUBLISH, wake .. '*', 'renew') end
  local sleep_us = want > 0 and cap_ms * 1000 or -1
  return {now_us, sleep_us, 0, 0, stepped and 5 or 1, clamp_from, 0, {}, {}, {}, {}, 0}
end

local ids, dues, bodies, lapsed, fence_no = {}, {}, {}, 0, 0
local ears = redis.pcall('PUBSUB', NUMSUB, wake .. worker)
local heard = not ears.err and ears[2] > 0
-- Alive, as this call shows, though its channel is silent: not to be judged by it.
if not heard then redis.call('ZREM', workers, worker) end
local due_at, lapse_at = first_due(), first_lapse()
local hold_ms = stepped and math.max(steady_in_ms, STEADY_MS) or steady_in_ms
local expired_wait = hold_ms == 0 and lapse_at and lapse_at <= now_ms
if want > 0 and expired_wait and lapse_at < clear_ms and clear_ms <= now_ms and lift(clear_ms) then
  due_at, lapse_at = first_due(), first_lapse()
  expired_wait = false
end
if want > 0 and (expired_wait or due_at and due_at <= now_ms) then
  local holders, due = {}, redis.call('ZRANGEBYSCORE', schedule, '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, want)
  if expired_wait then
    local most = math.max(want - #due / 2, math.ceil(want / 2))
    local expired = redis.call('ZRANGEBYSCORE', processing, '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, most)
    for i = 1, #expired, 2 do
      ids[#ids + 1], dues[#dues + 1] = expired[i], expired[i + 1]
    end
    lapsed = #ids
    for i, token in ipairs(redis.call('HMGET', lease, unpack(ids))) do
      if token then
        dues[i] = tonumber(string.sub(token, 18, 32)) or dues[i]
        holders[i] = string.sub(token, 43, 62)
      end
    end
  end
  for i = 1, math.min(#due, (want - lapsed) * 2), 2 do
    ids[#ids + 1], dues[#dues + 1] = FIFO and string.sub(due[i], 18) or due[i], due[i + 1]
  end
  bodies = bodies_of(ids)
  for i = #ids, #bodies + 1, -1 do ids[i], dues[i] = nil, nil end
  lapsed = math.min(lapsed, #ids)
  fence_no = give(ids, dues, lapsed)
  if lapsed > 0 then recover({unpack(ids, 1, lapsed)}, holders, heard) end
  if heard then
    redis.call('ZADD', workers, now_ms, worker)
    redis.call('EXPIRE', workers, 86400)
  end
  redis.call('SET', turn, call .. table.concat(ids, '\n'), 'EX', 120)
  due_at = first_due()
  lapse_at = lapsed == 0 and earlier(lapse_at, now_ms + lease_ms) or first_lapse()
else
  -- A late copy of this call must not take jobs either: the worker would never know of them.
  redis.call('SET', turn, call, 'EX', 120)
end
if stepped then redis.pcall(PUBLISH, wake .. '*', 'renew') end

local clear = not lapse_at or lapse_at > now_ms
local wait_us, seat, flags = -1, 0, (heard and 0 or 2) + (stepped and 4 or 0) + (clear and 8 or 0)
local listed = heard and (#ids > 0 or last ~= '1' and redis.call('ZSCORE', workers, worker))
local others = redis.call('ZCARD', workers) - (listed and 1 or 0)
if #ids == want then
  local head = earlier(due_at, lapse_at)
  if head then watch(math.max(head, now_ms)) end
else
  if lapse_at and lapse_at <= now_ms then lapse_at = now_ms + math.max(hold_ms, 1) end
  local look = earlier(earlier(due_at, lapse_at), now_ms + cap_ms)
  if heard then
    look, seat = take_seat(math.max(look, now_ms))
  else
    look = math.min(look, now_ms + DEAF_POLL_MS)
  end
  wait_us = math.max(0, look * 1000 - now_us)
end
return {now_us, wait_us, seat, others, flags, clamp_from, fence_no, ids, bodies, dues, extras_of(ids), lapsed}
