-- Which of the leases are still held under exactly these tokens; everything else is refused.
local stored = redis.call('HMGET', lease, unpack(ids))
local mine, bits = {}, {}
for i = 1, count do
  if stored[i] == tokens[i] then
    mine[#mine + 1] = i
    bits[i] = '1'
  else
    bits[i] = '0'
  end
end
