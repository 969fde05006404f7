-- A repeated claim: those of its leases that nobody took since, renewed.
local function again(given)
  local ids, dues, scores, fence_no = {}, {}, {}, 0
  local wanted = {}
  for id in string.gmatch(given, '[^\n]+') do wanted[#wanted + 1] = id end
  if #wanted == 0 then return ids, dues, {}, fence_no end
  for i, token in ipairs(redis.call('HMGET', lease, unpack(wanted))) do
    if token and string.sub(token, 43) == worker .. ':' .. call then
      ids[#ids + 1] = wanted[i]
      dues[#dues + 1] = string.sub(token, 18, 32)
      fence_no = tonumber(string.sub(token, 1, 16))
      scores[#scores + 1] = now_ms + lease_ms
      scores[#scores + 1] = wanted[i]
    end
  end
  if #ids == 0 then return ids, dues, {}, fence_no end
  redis.call('ZADD', processing, unpack(scores))
  return ids, dues, redis.call('HMGET', payload, unpack(ids)), fence_no
end
