-- A due time as it travels: "+ms" counts from now, else Unix ms; the past means now.
local function due_ms(text)
  local ms = tonumber(text)
  if string.byte(text) == 43 then return now_ms + ms end
  if ms < now_ms then return now_ms end
  return ms
end
