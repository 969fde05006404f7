-- check: which of the ids contradict themselves, and how.
-- KEYS: meta schedule processing dead payload lease tally order
-- ARGV:
-- EACH: ids
-- PARTS: version clock order diagnose
-- RETURNS: two characters for each job: its fault or -, then where it is (schedule 1 + processing 2 + dead 4)
local answer, faults, places = {}, diagnose(ids)
for i = 1, count do answer[i] = faults[i] .. places[i] end
return table.concat(answer)
