-- The state as it stands now; nothing is written.
-- Returns: now, live permits, then the state's fields and values in turn.
local found = {whole(now), redis.call('ZCOUNT', KEYS[3], '(' .. whole(now), '+inf')}
local function tell(name, value)
  found[#found + 1] = name
  found[#found + 1] = type(value) == 'number' and whole(value) or value
end
tell('buckets', #intervals)
for name, value in pairs(s) do
  if type(value) ~= 'table' then tell(name, value) end
end
for i = 1, #intervals do
  tell('base' .. i, bases[i])
  tell('interval' .. i, intervals[i])
  tell('gate' .. i, gates[i])
  tell('tat' .. i, tats[i])
end
return found
