-- sweep: looks for lease holders whose channel has no receiver, and notes since when (a negative sign of life).
-- At most 128 of them a call, the silent and the longest unseen first.
-- KEYS: meta lease workers
-- ARGV: worker wake grace_ms
--   worker: the caller, who is passed over   wake: prefix of wake channels   grace_ms: how long silence is forgiven
-- PARTS: drain version clock
-- RETURNS: ms until the next one's grace is over (-1: nobody is silent for less), how many others there are, then the
--   workers silent for longer
local holders = redis.call('ZRANGE', workers, 0, 127, 'WITHSCORES')
local channels = {}
for i = 1, #holders, 2 do channels[#channels + 1] = wake .. holders[i] end
if #channels == 0 then return {-1, 0} end
local heard = redis.pcall('PUBSUB', NUMSUB, unpack(channels))
if heard.err then return {-1, 0} end
local answer, again, others = {-1, 0}, nil, 0
for i = 1, #holders, 2 do
  local who, sign = holders[i], tonumber(holders[i + 1])
  if who ~= worker then others = others + 1 end
  if heard[i + 1] > 0 then
    if sign < 0 then redis.call('ZADD', workers, 'XX', now_ms, who) end
  elseif who ~= worker then
    if sign >= 0 then
      sign = -now_ms
      redis.call('ZADD', workers, 'XX', sign, who)
    end
    local left = grace_ms - (now_ms + sign)
    if left <= 0 then
      answer[#answer + 1] = who
    elseif not again or left < again then
      again = left
    end
  end
end
answer[1], answer[2] = again or -1, others
return answer
