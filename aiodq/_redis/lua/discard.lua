-- discard: removes a key that is not of the type it must be, and that workers write anew.
-- KEYS: meta set
-- ARGV: must_be
--   must_be: the type
-- PARTS: version
-- RETURNS: 1 when it was removed
local is = redis.call('TYPE', set).ok
if is == must_be or is == 'none' then return 0 end
return redis.call('DEL', set)
