-- The time, µs; to be asked for once a call.
local function moment()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
