-- The done marks of the ids, from the ring's three buckets (none when nobody asked): id's due time or false.
local function done_marks(asked)
  local found = {}
  for _, bucket in ipairs({done0, done1, done2}) do
    for i, due in ipairs(redis.call('HMGET', bucket, unpack(asked))) do
      if due then found[i] = due end
    end
  end
  return found
end
