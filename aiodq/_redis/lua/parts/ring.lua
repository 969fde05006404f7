-- Marks live in a ring of three hashes: each is written for one window, and kept for one more. The third is a guard for
-- servers whose clock moves on within a script.
local function put_marks(ring, window, at_ms, marks)
  local period = math.floor(at_ms / window)
  local bucket = ring[period % 3 + 1]
  redis.call('HSET', bucket, unpack(marks))
  redis.call('PEXPIREAT', bucket, string.format('%d', (period + 2) * window))
end
