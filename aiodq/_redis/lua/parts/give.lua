-- Hands the jobs out: the first `lapsed` of the ids are taken over, the others leave the schedule, of which they are the
-- first.
local function give(ids, dues, lapsed)
  local fence_no = now_us
  local previous = redis.call('GET', fence)
  if previous and tonumber(previous) >= fence_no then fence_no = tonumber(previous) + 1 end
  redis.call('SET', fence, string.format('%d', fence_no), 'EX', 86400)
  local scores, tokens, deadline = {}, {}, now_ms + lease_ms
  local front, back = string.format('%016d:', fence_no), string.format(':%08d:', lease_ms) .. worker .. ':' .. call
  for i = 1, #ids do
    scores[i * 2 - 1], scores[i * 2] = deadline, ids[i]
    tokens[i * 2 - 1], tokens[i * 2] = ids[i], front .. string.format('%015d', dues[i]) .. back
  end
  redis.call('ZADD', processing, unpack(scores))
  redis.call('HSET', lease, unpack(tokens))
  if #ids > lapsed then redis.call('ZREMRANGEBYRANK', schedule, 0, #ids - lapsed - 1) end
  return fence_no
end
