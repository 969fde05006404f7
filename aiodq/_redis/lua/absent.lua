-- absent: which of the workers in a list (idle or workers) are gone: unheard, and their score long past.
-- KEYS: meta set
-- ARGV: wake age_ms
--   wake: prefix of wake channels   age_ms: how far back the score must lie
-- EACH: names
-- PARTS: version clock gone
-- RETURNS: one 1 (gone) or 0 for each
local found, bits = gone_of(names), {}
for i = 1, count do bits[i] = found[i] and '1' or '0' end
return table.concat(bits)
