-- resume: claims give jobs again; all workers are told.
-- KEYS: meta
-- ARGV: wake
--   wake: prefix of wake channels
-- PARTS: version
-- RETURNS: 1 when the queue was paused
local was = redis.call('HDEL', meta, 'paused')
redis.pcall(PUBLISH, wake .. '*', 'resume')
return was
