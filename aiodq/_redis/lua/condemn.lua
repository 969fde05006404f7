-- condemn: absent -> dead
-- A payload that is in no place and that nobody can read goes to the dead letters, if it is still that payload.
-- KEYS: meta schedule processing dead payload lease tally order
-- ARGV:
-- EACH: ids shas histories
-- PARTS: drain version clock order diagnose
-- RETURNS: one 1 (put to the dead letters) or 0 for each job
local faults, bits = diagnose(ids), {}
for i, id in ipairs(ids) do
  bits[i] = '0'
  if faults[i] == 'o' and redis.sha1hex(redis.call('HGET', payload, id)) == shas[i] then
    bits[i] = '1'
    redis.call('ZADD', dead, now_ms, id)
    redis.call('HSET', tally, 't:' .. id, histories[i])
    redis.call('HDEL', lease, id)
  end
end
return table.concat(bits)
