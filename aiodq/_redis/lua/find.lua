-- find: what is stored about each of the ids.
-- KEYS: meta schedule processing dead payload lease tally done0 done1 done2 order
-- ARGV:
-- EACH: ids
-- PARTS: version where order describe
-- RETURNS: letters of the places (s p d n a), scores, payloads, tokens, triples of history, crashes and interruptions
local letters, scores = {}, {}
local members = FIFO and members_of(ids) or ids
for i, id in ipairs(ids) do
  local at = redis.call('ZSCORE', schedule, members[i])
  letters[i] = at and 's' or where(id)
  scores[i] = at or redis.call('ZSCORE', processing, id) or redis.call('ZSCORE', dead, id) or '0'
end
return {table.concat(letters), scores, describe(ids)}
