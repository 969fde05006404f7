-- Where a job is that is not scheduled: one letter.
local function where(id)
  if redis.call('ZSCORE', processing, id) then return 'p' end
  if redis.call('ZSCORE', dead, id) then return 'd' end
  for _, bucket in ipairs({done0, done1, done2}) do
    if redis.call('HEXISTS', bucket, id) == 1 then return 'n' end
  end
  return 'a'
end
