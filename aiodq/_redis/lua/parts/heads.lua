-- The first due time; nil when none is scheduled.
local function first_due()
  local due = redis.call('ZRANGE', schedule, 0, 0, 'WITHSCORES')[2]
  return due and tonumber(due)
end

-- The first lease deadline; nil when nothing is held.
local function first_lapse()
  local lapse = redis.call('ZRANGE', processing, 0, 0, 'WITHSCORES')[2]
  return lapse and tonumber(lapse)
end

local function earlier(a, b)
  if a and b then return math.min(a, b) end
  return a or b
end
