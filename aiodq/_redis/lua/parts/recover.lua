-- Notes a lost lease: a crash where the old holder's channel is silent and silence can be told, else an interruption.
local function recover(lapsed, holders, telling)
  local channels, place, heard = {}, {}, {}
  for i = 1, #lapsed do
    local who = holders[i]
    if telling and who and not place[who] then
      channels[#channels + 1] = wake .. who
      place[who] = #channels * 2
    end
  end
  if #channels > 0 then heard = redis.pcall('PUBSUB', NUMSUB, unpack(channels)) end
  for i = 1, #lapsed do
    local at = place[holders[i]]
    redis.call('HINCRBY', tally, (at and heard[at] == 0 and 'c:' or 'i:') .. lapsed[i], 1)
  end
end
