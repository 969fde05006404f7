-- Counters, history and numbers of jobs that are over.
local function forget(gone)
  if redis.call('EXISTS', tally) == 1 then
    local fields = {}
    for _, id in ipairs(gone) do
      fields[#fields + 1] = 't:' .. id
      fields[#fields + 1] = 'c:' .. id
      fields[#fields + 1] = 'i:' .. id
    end
    redis.call('HDEL', tally, unpack(fields))
  end
  if FIFO then lose_numbers(gone) end
end
