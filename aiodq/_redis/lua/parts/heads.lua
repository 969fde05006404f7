-- The first due time and the first lease deadline; nil where there is none.
local function heads()
  local due = redis.call('ZRANGE', schedule, 0, 0, 'WITHSCORES')[2]
  local lapse = redis.call('ZRANGE', processing, 0, 0, 'WITHSCORES')[2]
  return due and tonumber(due), lapse and tonumber(lapse)
end

local function earlier(a, b)
  if a and b then return math.min(a, b) end
  return a or b
end
