-- The members of the jobs in `mine` leave PROCESSING; returns their ids.
local function leave_processing()
  local going = {}
  for n, i in ipairs(mine) do going[n] = ids[i] end
  if #going > 0 then
    redis.call('ZREM', processing, unpack(going))
    redis.call('HDEL', lease, unpack(going))
  end
  if last == '1' then redis.call('ZREM', workers, worker) end
  return going
end
