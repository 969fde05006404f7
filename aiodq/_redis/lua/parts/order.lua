-- First in, first out: in the schedule a number goes before the id, so that of jobs due in one millisecond the one that
-- came first is the first. The members of the ids; of an id without a number, one that is not there.
local function members_of(asked)
  local members = {}
  for i, place in ipairs(redis.call('HMGET', order, unpack(asked))) do members[i] = (place or '') .. asked[i] end
  return members
end

local function is_numbered(id)
  return redis.call('HEXISTS', order, id) == 1
end

local function lose_numbers(gone)
  if #gone > 0 then redis.call('HDEL', order, unpack(gone)) end
end
