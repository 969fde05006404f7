-- What contradicts itself about each of the ids, a letter (see aiodq/_core/inspection.py); and where the job is.
local function fault_of(id, s, p, d, token)
  local body = redis.call('HEXISTS', payload, id) == 1
  local held = token and #token == 71 and string.find(token, '^%d+:%d+:%d+:[^:]+:[^:]+$')
  if (s and (p or d)) or (p and d) then return (held and p or not s) and 'p' or 's' end
  if not body and p and held and tonumber(p) > now_ms then return 'h' end
  if not body and (s or p or d) then return 'm' end
  if p and not held then return 'u' end
  if not p and body and not (s or d) then return held and 'l' or 'o' end
  if token and not p then return 'x' end
  if FIFO and not body and is_numbered(id) then return 't' end
  if body or redis.call('EXISTS', tally) == 0 then return '-' end
  local kept = redis.call('HMGET', tally, 't:' .. id, 'c:' .. id, 'i:' .. id)
  return (kept[1] or kept[2] or kept[3]) and 't' or '-'
end

local function diagnose(asked)
  local members = FIFO and members_of(asked) or asked
  local s, p = redis.call('ZMSCORE', schedule, unpack(members)), redis.call('ZMSCORE', processing, unpack(asked))
  local d, tokens = redis.call('ZMSCORE', dead, unpack(asked)), redis.call('HMGET', lease, unpack(asked))
  local faults, places = {}, {}
  for i, id in ipairs(asked) do
    faults[i] = fault_of(id, s[i], p[i], d[i], tokens[i])
    places[i] = (s[i] and 1 or 0) + (p[i] and 2 or 0) + (d[i] and 4 or 0)
  end
  return faults, places, tokens
end
