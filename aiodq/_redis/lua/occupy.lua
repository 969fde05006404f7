-- occupy: Asks whether jobs that were claimed may run: of each name at most so many do at a time. A job that may has a permit
-- of its own among them, by its id, so that asking twice changes nothing and a later claim of the job keeps it. One that
-- may not is noted as waiting. Where all permits are taken, those of jobs that are not being run any more are cleared first.
-- KEYS: meta turn lease processing permits waiting
-- ARGV: call
--   call: the caller's call id
-- EACH: ids names limits dues sinces agains
--   names: what the limits are on   limits: how many of that name   dues: the jobs' own due times, ms
--   sinces: the due times that they were claimed at, ms   agains: when they ask again at the latest if they may not run, ms
-- PARTS: drain version repeat of_name
-- RETURNS: for each job one 1 (it may run) or 0 (it waits), and 8 characters: how many wait for that name
local answer, cleared = {}, {}
for i = 1, count do
  local name, id = names[i], ids[i]
  local here = redis.call('ZSCORE', permits, name .. '\0' .. id)
  redis.call('ZREM', waiting, wait_of(name, dues[i], sinces[i], id))
  if not here and not cleared[name] and taken(name) >= tonumber(limits[i]) then
    cleared[name] = true
    clear(name)
  end
  local may = here or taken(name) < tonumber(limits[i])
  if may then
    redis.call('ZADD', permits, 0, name .. '\0' .. id)
  else
    redis.call('ZADD', waiting, 0, wait_of(name, dues[i], agains[i], id))
  end
  local crowd = redis.call('ZLEXCOUNT', waiting, '[' .. name .. '\0', '(' .. name .. '\1')
  answer[i] = string.format('%d%08d', may and 1 or 0, crowd)
end
redis.call('EXPIRE', permits, 604800)
redis.call('EXPIRE', waiting, 604800)
answer = table.concat(answer)
redis.call('SET', turn, call .. answer, 'EX', 120)
return answer
