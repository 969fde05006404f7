-- Restores: somebody plans to look at `at` or before, a second one within 100 ms after it.
local function watch(at)
  local seats, limit, taken = redis.call('ZRANGE', idle, 0, 5, 'WITHSCORES'), at, 0
  for i = 1, #seats, 2 do
    local who, plan = seats[i], tonumber(seats[i + 1])
    local late = plan < now_ms - 200
    if late or plan > limit then
      local wait_us = string.format('%d', math.max(0, limit * 1000 - now_us))
      local heard = redis.pcall(PUBLISH, wake .. who, wait_us)
      if heard == 0 then
        redis.call('ZREM', idle, who)
      elseif type(heard) == 'number' then
        plan = late and now_ms + 5000 or limit
        redis.call('ZADD', idle, plan, who)
      end
    end
    if plan <= limit and not late then
      taken, limit = taken + 1, at + 100
      if taken == 2 then return end
    end
  end
end
