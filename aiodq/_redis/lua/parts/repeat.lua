-- The sender's last call and its answer: a repeat after a lost reply has no second effect. A call from before the last
-- one comes from a connection that its sender gave up; nobody reads the answer, and it must have no effect either.
local record = redis.call('GET', turn)
if record then
  local latest = string.sub(record, 1, 8)
  if latest == call then return string.sub(record, 9) end
  if latest > call then return redis.error_reply('STALE ' .. call .. ' after ' .. latest) end
end
