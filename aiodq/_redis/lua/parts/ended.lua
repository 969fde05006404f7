-- When jobs of these ids ended last, µs, as far as it is noted.
local function ended_at(asked)
  local latest = {}
  for _, bucket in ipairs({past0, past1, past2}) do
    for i, at in ipairs(redis.call('HMGET', bucket, unpack(asked))) do
      latest[i] = math.max(latest[i] or 0, tonumber(at or 0))
    end
  end
  return latest
end
