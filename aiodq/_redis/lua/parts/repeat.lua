-- The sender's last call and its answer: a repeat after a lost reply has no second effect.
local record = redis.call('GET', turn)
if record and string.sub(record, 1, 8) == call then
  return string.sub(record, 9)
end
