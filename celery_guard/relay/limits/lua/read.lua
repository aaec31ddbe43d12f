-- The state as it stands now; nothing is written.
-- Returns: now, live permits, then the state's fields and values in turn.
local found = {whole(now), redis.call('ZCOUNT', KEYS[3], '(' .. whole(now), '+inf')}
for _, part in ipairs(redis.call('HGETALL', KEYS[1])) do found[#found + 1] = part end
return found
