-- Read once: before Redis 7.2 TIME moves on while a script runs.
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now_ms = math.floor(now_us / 1000)
