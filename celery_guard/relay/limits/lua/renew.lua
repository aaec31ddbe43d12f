-- Prolong a permit, and the probe if it is one; one that is over may be another's by now.
-- KEYS as in rules.lua. ARGV: permit, lease. Returns nothing.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local over = string.format('%.0f', now + tonumber(ARGV[2]))
if tonumber(redis.call('ZSCORE', KEYS[3], ARGV[1]) or 0) > now then
  redis.call('ZADD', KEYS[3], over, ARGV[1])
end
local most = tonumber(redis.call('HGET', KEYS[1], 'lease') or 0)
redis.call('HSET', KEYS[1], 'lease', string.format('%.0f', math.max(most, tonumber(ARGV[2]))))
local probing = redis.call('HGET', KEYS[1], 'probe') == ARGV[1]
if probing and tonumber(redis.call('HGET', KEYS[1], 'probe_until')) > now then
  redis.call('HSET', KEYS[1], 'probe_until', over)
end
