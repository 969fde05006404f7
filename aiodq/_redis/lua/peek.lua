-- peek: some jobs of one place, in the order of their scores.
-- KEYS: meta set payload lease tally
-- ARGV: from limit
--   from: how many to pass over   limit: how many, at most 100
-- PARTS: version clock describe
-- RETURNS: now ms, ids, scores, payloads, tokens, triples of history, crashes and interruptions
local page = redis.call('ZRANGE', set, from, from + limit - 1, 'WITHSCORES')
if #page == 0 then return {now_ms, {}, {}, {}, {}, {}} end
local asked, scores = {}, {}
local numbered = FIFO and string.sub(set, -9) == ':schedule'
for i = 1, #page, 2 do
  asked[#asked + 1] = numbered and string.sub(page[i], 18) or page[i]
  scores[#scores + 1] = page[i + 1]
end
return {now_ms, asked, scores, describe(asked)}
