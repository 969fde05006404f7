-- Members of `permits` are a name, a zero byte and a job's id; those of `waiting` have, between the two, the job's own due
-- time and the one at which it asks again.
local function wait_of(name, due, again, id)
  return string.format('%s\0%015d\0%015d\0', name, due, again) .. id
end

local function taken(name)
  return redis.call('ZLEXCOUNT', permits, '[' .. name .. '\0', '(' .. name .. '\1')
end

-- Clears permits of jobs that are not being run any more: their worker died before it could. At most a hundred a call.
local function clear(name)
  local from = math.max(0, taken(name) - 100)
  local page = redis.call('ZRANGEBYLEX', permits, '[' .. name .. '\0', '(' .. name .. '\1', 'LIMIT', from, 100)
  local held, gone = {}, {}
  for i, member in ipairs(page) do held[i] = string.sub(member, #name + 2) end
  if #held == 0 then return end
  for i, deadline in ipairs(redis.call('ZMSCORE', processing, unpack(held))) do
    if not deadline then gone[#gone + 1] = page[i] end
  end
  if #gone > 0 then redis.call('ZREM', permits, unpack(gone)) end
end
