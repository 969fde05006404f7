-- Restores: somebody plans to look at `at` or before, a second one within 100 ms after it. Who is gone or late is put
-- out of the way, and the next ones are asked: a whole host may have died, whose workers come first. They may have been
-- the ones to look at the head, so it counts then.
local function watch(at)
  local passed = {}
  for _, most in ipairs({6, WATCH_CROWD}) do
    local seats, limit, taken, again = redis.call('ZRANGE', idle, 0, most - 1, 'WITHSCORES'), at, 0, false
    for i = 1, #seats, 2 do
      local who, plan = seats[i], tonumber(seats[i + 1])
      local late = plan < now_ms - 200
      if (late or plan > limit) and not passed[who] then
        local notice = string.format('%d %d', math.max(0, limit * 1000 - now_us), now_us)
        local heard = redis.pcall(PUBLISH, wake .. who, notice)
        if heard == 0 then
          redis.call('ZREM', idle, who)
          again = true
        elseif type(heard) == 'number' then
          plan = late and now_ms + 5000 or limit
          redis.call('ZADD', idle, plan, who)
          passed[who], again = late, again or late
        end
      end
      if plan <= limit and not late and not passed[who] then
        taken, limit = taken + 1, at + 100
        if taken == 2 then break end
      end
    end
    if not again then return end
    local due = redis.call('ZRANGE', schedule, 0, 0, 'WITHSCORES')[2]
    local lapse = redis.call('ZRANGE', processing, 0, 0, 'WITHSCORES')[2]
    at = math.min(at, math.max(math.min(tonumber(due or at), tonumber(lapse or at)), now_ms))
  end
end
