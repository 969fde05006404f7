-- Leases that ended before the caller saw that none had ended were renewed while the clock was back: their holders may
-- live, and have their whole length from now. A page; returns whether there were any.
local function lift(clear_ms)
  local page = redis.call('ZRANGEBYSCORE', processing, '-inf', '(' .. clear_ms, 'LIMIT', 0, 100)
  if #page == 0 then return false end
  local scores = {}
  for i, token in ipairs(redis.call('HMGET', lease, unpack(page))) do
    scores[#scores + 1] = now_ms + (token and tonumber(string.sub(token, 34, 41)) or 0)
    scores[#scores + 1] = page[i]
  end
  redis.call('ZADD', processing, 'XX', unpack(scores))
  return true
end
