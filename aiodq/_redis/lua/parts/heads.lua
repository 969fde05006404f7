-- The first due time, or the first lease deadline; nil where there is none.
local function head(set)
  local score = redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')[2]
  return score and tonumber(score)
end

local function earlier(a, b)
  if a and b then return math.min(a, b) end
  return a or b
end
