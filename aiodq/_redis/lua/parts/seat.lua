-- Takes a seat: the first for the head's time, the second 100 ms later, or none. Returns the plan (ms) and the seat.
local function take_seat(head)
  local plan, seat = head, 1
  if redis.call('ZCOUNT', idle, now_ms - 200, head) > 0 then
    plan, seat = head + 100, 2
    if redis.call('ZCOUNT', idle, now_ms - 200, plan) > 1 then
      plan, seat = now_ms + math.floor(far_permille * math.max(cap_ms / 1000, 2 * redis.call('ZCARD', idle))), 0
    end
  end
  redis.call('ZADD', idle, plan, worker)
  redis.call('EXPIRE', idle, 86400)
  return plan, seat
end
