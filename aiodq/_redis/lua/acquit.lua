-- acquit: a convicted worker leaves the list of holders, if it is still silent.
-- KEYS: meta lease workers
-- ARGV: suspect
--   suspect: the worker
-- PARTS: drain version
-- RETURNS: 1 when it was removed
local sign = redis.call('ZSCORE', workers, suspect)
if sign and tonumber(sign) < 0 then return redis.call('ZREM', workers, suspect) end
return 0
