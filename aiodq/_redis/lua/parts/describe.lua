-- All that is stored about the ids: bodies, tokens, and flat triples of history, crashes, interruptions.
local function describe(asked)
  local fields = {}
  for _, id in ipairs(asked) do
    fields[#fields + 1] = 't:' .. id
    fields[#fields + 1] = 'c:' .. id
    fields[#fields + 1] = 'i:' .. id
  end
  return redis.call('HMGET', payload, unpack(asked)), redis.call('HMGET', lease, unpack(asked)),
    redis.call('HMGET', tally, unpack(fields))
end
