-- Prolong a permit, and the probe if it is one; one that is over may be another's by now.
-- KEYS as in rules.lua. ARGV: permit, lease. Returns nothing.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local lease = tonumber(ARGV[2])
if tonumber(redis.call('ZSCORE', KEYS[3], ARGV[1]) or 0) > now then
  redis.call('ZADD', KEYS[3], string.format('%.0f', now + lease), ARGV[1])
end
local packed = redis.call('GET', KEYS[1])
local s = packed and cmsgpack.unpack(packed) or {}
s.lease, s.seen = math.max(s.lease or 0, lease), math.max(s.seen or 0, now)
if s.probe == ARGV[1] and s.probe_until > now then s.probe_until = now + lease end
redis.call('SET', KEYS[1], cmsgpack.pack(s))
