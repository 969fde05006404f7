-- pause: claims give nothing until `resume`; enqueues go on.
-- KEYS: meta
-- ARGV: reason
--   reason: shown to operators
-- PARTS: version
-- RETURNS: 1
redis.call('HSET', meta, 'paused', reason)
return 1
