-- Leases that reach further ahead than their own length were given before the clock went back: pull them in, a page a
-- call. Returns where the next page begins, or -1.
local function clamp(from)
  local page = redis.call('ZREVRANGE', processing, from, from + 99, 'WITHSCORES')
  local held, scores = {}, {}
  for i = 1, #page, 2 do held[#held + 1] = page[i] end
  if #held == 0 then return -1 end
  for i, token in ipairs(redis.call('HMGET', lease, unpack(held))) do
    local most = now_ms + (token and tonumber(string.sub(token, 34, 41)) or 0)
    if tonumber(page[i * 2]) > most then
      scores[#scores + 1] = most
      scores[#scores + 1] = held[i]
    end
  end
  if #scores > 0 then redis.call('ZADD', processing, 'XX', unpack(scores)) end
  return #held == 100 and from + 100 - #scores / 2 or -1
end
