-- dismiss: takes workers off a list (idle or workers) that are gone: unheard, and their score long past.
-- KEYS: meta lease set
-- ARGV: wake age_ms
--   wake: prefix of wake channels   age_ms: how far back the score must lie
-- EACH: names
-- PARTS: drain version clock gone
-- RETURNS: one 1 (taken off) or 0 for each
local found, bits = gone_of(names), {}
for i = 1, count do
  bits[i] = '0'
  if found[i] then bits[i] = string.format('%d', redis.call('ZREM', set, names[i])) end
end
return table.concat(bits)
