-- First in, first out: of a flat list of scores and ids, each id becomes its member. `anew`: under a new number, and what is
-- left in the schedule under an old one goes; else an id keeps the number it has.
local function number(scores, anew)
  local last = math.max(tonumber(redis.call('GET', seq) or 0), now_us - 1)
  local fields = {}
  for i = 2, #scores, 2 do
    local id = scores[i]
    local place = redis.call('HGET', order, id)
    if place and anew then redis.call('ZREM', schedule, place .. id) end
    if not place or anew then
      last = last + 1
      place = string.format('%016d:', last)
      fields[#fields + 1], fields[#fields + 2] = id, place
    end
    scores[i] = place .. id
  end
  if #fields == 0 then return end
  redis.call('HSET', order, unpack(fields))
  redis.call('SET', seq, string.format('%d', last), 'EX', 86400)
end
