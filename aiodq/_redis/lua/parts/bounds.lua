-- Refuses a batch whose new jobs would be too many, before anything is written. 0: no bound.
if max_jobs ~= '0' or max_bytes ~= '0' then
  local fresh, bytes = 0, 0
  for i = 1, count do
    if redis.call('HEXISTS', payload, ids[i]) == 0 then fresh, bytes = fresh + 1, bytes + #bodies[i] end
  end
  local jobs, most = redis.call('HLEN', payload) - redis.call('ZCARD', dead), tonumber(max_jobs)
  if most > 0 and fresh > 0 and jobs + fresh > most then return redis.error_reply('FULL jobs ' .. most .. ' ' .. jobs) end
  most = tonumber(max_bytes)
  local used = most > 0 and redis.call('MEMORY', USAGE, payload, 'SAMPLES', 100) or 0
  if most > 0 and fresh > 0 and used + bytes > most then
    return redis.error_reply(string.format('FULL bytes %d %d', most, used))
  end
end
