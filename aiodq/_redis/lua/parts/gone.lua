-- Of the workers asked about, those in `set` whose score lies more than age_ms back, and that nobody hears.
local function gone_of(names)
  local channels, found = {}, {}
  for i, name in ipairs(names) do channels[i] = wake .. name end
  local heard = redis.pcall('PUBSUB', NUMSUB, unpack(channels))
  for i, score in ipairs(redis.call('ZMSCORE', set, unpack(names))) do
    found[i] = not heard.err and heard[i * 2] == 0 and score and now_ms - math.abs(score) > tonumber(age_ms)
  end
  return found
end
