-- Leases that ended more than a clock step before the very claim that gave them were renewed while the clock was back:
-- their holders may live, and have their whole length from now. A page; returns whether there were any.
local function lift()
  local page = redis.call('ZRANGEBYSCORE', processing, '-inf', now_ms, 'WITHSCORES', 'LIMIT', 0, 100)
  local held, scores = {}, {}
  for i = 1, #page, 2 do held[#held + 1] = page[i] end
  for i, token in ipairs(redis.call('HMGET', lease, unpack(held))) do
    local fence_us = token and tonumber(string.sub(token, 1, 16))
    if fence_us and fence_us <= now_us + CLOCK_STEP_US and page[i * 2] * 1000 < fence_us - CLOCK_STEP_US then
      scores[#scores + 1] = now_ms + tonumber(string.sub(token, 34, 41))
      scores[#scores + 1] = held[i]
    end
  end
  if #scores > 0 then redis.call('ZADD', processing, 'XX', unpack(scores)) end
  return #scores > 0
end
