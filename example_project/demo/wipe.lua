-- Wipe the broker, but only while enough messages wait in it: looked at and wiped in one step.
-- KEYS: the queues.  ARGV[1]: fewest messages that must wait.  ARGV[2]: FLUSHALL or FLUSHDB.
-- Returns the number of messages that were lost, or -1 where too few waited and nothing was done.
local waiting = 0
for _, queue in ipairs(KEYS) do
  waiting = waiting + redis.call('LLEN', queue)
end
if waiting < tonumber(ARGV[1]) then
  return -1
end
redis.call(ARGV[2])
return waiting
