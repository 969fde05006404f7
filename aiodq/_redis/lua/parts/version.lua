local exceptions = redis.call('HMGET', meta, 'v', 'paused', 'fifo', 'shards')
if exceptions[1] and tonumber(exceptions[1]) > VERSION then
  return redis.error_reply('NEWER ' .. exceptions[1])
end
if exceptions[4] then return redis.error_reply('SHARDED ' .. exceptions[4]) end
if exceptions[3] ~= FIFO then return redis.error_reply(FIFO and 'UNORDERED' or 'ORDERED') end
