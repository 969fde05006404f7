-- leave: a worker gives up its seat, and somebody else is woken in its place.
-- KEYS: meta lease idle workers schedule processing
-- ARGV: worker wake holds
--   worker: the caller   wake: prefix of wake channels   holds: 1: it still holds leases and stays in the list of holders
-- PARTS: drain version clock watch heads
-- RETURNS: 1
redis.call('ZREM', idle, worker)
if holds ~= '1' then redis.call('ZREM', workers, worker) end
local at = earlier(first_due(), first_lapse())
if at then watch(math.max(at, now_ms)) end
return 1
