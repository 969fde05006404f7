local exceptions = redis.call('HMGET', meta, 'v', 'paused')
if exceptions[1] and tonumber(exceptions[1]) > VERSION then
  return redis.error_reply('NEWER ' .. exceptions[1])
end
