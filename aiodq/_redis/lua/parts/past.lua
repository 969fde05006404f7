-- Notes when the jobs ended (µs): an enqueue that is sent again after a failover must not make them anew.
local function note_past(gone, at_us)
  local marks = {}
  for _, id in ipairs(gone) do
    marks[#marks + 1] = id
    marks[#marks + 1] = string.format('%d', at_us)
  end
  if #marks > 0 then put_marks({past0, past1, past2}, replay_ms, at_us / 1000, marks) end
end
