-- The payloads of the ids, read in slices until the byte budget is spent; the first is always among them.
local function bodies_of(ids)
  local bodies, bytes = {}, 0
  for from = 1, #ids, 25 do
    for _, body in ipairs(redis.call('HMGET', payload, unpack(ids, from, math.min(from + 24, #ids)))) do
      bytes = bytes + (body and #body or 0)
      if bytes > max_bytes and #bodies > 0 then return bodies end
      bodies[#bodies + 1] = body
    end
  end
  return bodies
end
