-- History and counters of the ids that have any: flat runs of position, history, crashes, interruptions.
local function extras_of(ids)
  local extras = {}
  if #ids == 0 or redis.call('EXISTS', tally) == 0 then return extras end
  local fields = {}
  for _, id in ipairs(ids) do
    fields[#fields + 1] = 't:' .. id
    fields[#fields + 1] = 'c:' .. id
    fields[#fields + 1] = 'i:' .. id
  end
  local kept = redis.call('HMGET', tally, unpack(fields))
  for i = 1, #ids do
    local history, crashes, interruptions = kept[i * 3 - 2], kept[i * 3 - 1], kept[i * 3]
    if history or crashes or interruptions then
      for _, value in ipairs({i, history, crashes, interruptions}) do extras[#extras + 1] = value end
    end
  end
  return extras
end
