-- Take tokens and a permit, or be told when to come back.
-- ARGV[2] to ARGV[6]: place, permit, cost, lease, within, as in ../answers.py.
-- Returns: granted (1 or 0), wait, reason, whether a place is kept (1 or 0).
ask = {
  place = ARGV[2], permit = ARGV[3],
  cost = tonumber(ARGV[4]), lease = tonumber(ARGV[5]), within = tonumber(ARGV[6]),
}

local function blocked()
  if s.open_until > now then
    return 'breaker', math.max(s.open_until, s.paused_until), false
  end
  local busy = s.open_until > 0 and s.probe_until > now and probe ~= ask.permit
  return busy and 'breaker' or 'rate', s.paused_until, busy
end

local function moved_on(times)
  local found = {}
  for n, time in ipairs(times) do found[n] = math.max(time, now) + ask.cost * intervals[n] end
  return found
end

local function refused(wait, reason, kept)
  s.refused = s.refused + 1
  save()
  return {0, wait, reason, kept and 1 or 0}
end

forget_expired()
s.lease = math.max(s.lease, ask.lease)
catch_up()
local kept = redis.call('ZSCORE', KEYS[2], ask.place)
local place = tonumber(kept or 0)

local function keep(time)
  if time > 0 then
    redis.call('ZADD', KEYS[2], whole(time), ask.place)
  elseif kept then
    redis.call('ZREM', KEYS[2], ask.place)
  end
end

if place + KEEP <= now then place = 0 end
if place - now > math.max(AHEAD, ask.within) then
  place = 0
  keep(0)
end
local reason, until_, busy = blocked()
if place > now and place >= until_ then return refused(place - now, reason, true) end
local new_gates, new_tats = moved_on(gates), moved_on(tats)
local at = math.max(fit(new_gates), until_)
if place == 0 then at = math.max(at, fit(new_tats)) end
local free = rules.concurrency == 0
if not free then
  local held = redis.call('ZCARD', KEYS[3])
  -- One's own does not count, which matters for the last one only.
  if held == rules.concurrency and redis.call('ZSCORE', KEYS[3], ask.permit) then held = held - 1 end
  free = held < rules.concurrency
end

if at <= now and not busy and free then
  gates = new_gates
  if place == 0 then tats = new_tats end
  s.used = s.used + ask.cost
  s.granted = s.granted + 1
  if s.open_until > 0 then probe, s.probe_until = ask.permit, now + ask.lease end
  if rules.concurrency > 0 then
    redis.call('ZADD', KEYS[3], whole(now + ask.lease), ask.permit)
    redis.call('HSET', KEYS[4], ask.permit, whole(now))
  end
  keep(0)
  save()
  return {1, 0, '', 0}
end
if at <= now and not busy then return refused(in_line(now) - now, reason, true) end
at = math.max(at, fit(new_tats))
if busy or #buckets == 0 then at = math.max(at, in_line(math.max(now, until_))) end
if at - now > ask.within then
  keep(0)
  return refused(at - now, reason, false)
end
tats = new_tats
keep(at)
return refused(at - now, reason, true)
