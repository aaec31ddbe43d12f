-- The beginning of take.lua, finish.lua and read.lua: the rules of ../decide.py, name by name.
-- KEYS[1]: the state, packed. KEYS[2]: sorted set, places by their time. KEYS[3]: sorted set,
-- permits by the end of their leases. KEYS[4]: hash, when each permit was taken.
-- ARGV[1]: numbers, the dependency's rules: concurrency, errors, the breaker's samples (0: none), ratio,
-- window and pause, then interval and burst of each bucket. The rest is what is asked.
-- Times: whole microseconds.
local MICRO = 1000000
local CUT_TENTHS, STEP, FLOOR, RAMP = 7, 50000, 50000, 100000
local GOOD_WINDOW, SHORTEST_PAUSE, LONGEST_PAUSE = 10 * MICRO, MICRO, 300 * MICRO
local ERRORS_OF = 20
local PROBES, KEEP, FIRST_HOLD, AHEAD = 3, 3600 * MICRO, 20000, 660 * MICRO

local n = {}
for number in string.gmatch(ARGV[1], '%d+') do n[#n + 1] = tonumber(number) end
local rules, buckets = {concurrency = n[1], errors = n[2]}, {}
if n[3] > 0 then
  rules.breaker = {samples = n[3], ratio = n[4], window = n[5], pause = n[6]}
end
for i = 7, #n, 2 do buckets[#buckets + 1] = {interval = n[i], burst = n[i + 1]} end
local ask
local clock = redis.call('TIME')
local now = clock[1] * MICRO + clock[2]

-- Redis would print a number this long as 1.7e+15.
local function whole(number) return string.format('%.0f', number) end

local s = {
  factor = MICRO, good_from = 0, used = 0, tried = 0, erred = 0, slowed = 0, paused_until = 0,
  line = 0, hold = FIRST_HOLD,
  counted_from = 0, fine = 0, failed = 0, open_until = 0, doublings = 0, probed = 0,
  probe_until = 0, lease = 0, seen = 0, granted = 0, refused = 0, throttled = 0, slowings = 0,
  openings = 0, probe = '', bases = {}, intervals = {}, gates = {}, tats = {},
}
local probe, bases, intervals, gates, tats

-- In one piece: to read and write it as a field a number took longer than all the rest.
local function load()
  local packed = redis.call('GET', KEYS[1])
  if packed then
    for name, value in pairs(cmsgpack.unpack(packed)) do s[name] = value end
  end
  probe, bases, intervals, gates, tats = s.probe, s.bases, s.intervals, s.gates, s.tats
end

local function save()
  s.probe, s.bases, s.intervals, s.gates, s.tats = probe, bases, intervals, gates, tats
  redis.call('SET', KEYS[1], cmsgpack.pack(s))
end

local function forget_expired()
  -- Nobody comes back to a place this old, so it does no harm until it goes.
  if (s.granted + s.refused) % 64 == 0 then
    redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', whole(now - KEEP))
  end
  for _, permit in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', whole(now))) do
    redis.call('ZREM', KEYS[3], permit)
    redis.call('HDEL', KEYS[4], permit)
  end
  if now < s.seen then
    -- Taken or renewed while the clock was ahead: it need not get there again.
    local latest = whole(now + s.lease)
    for _, permit in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '(' .. latest, '+inf')) do
      redis.call('ZADD', KEYS[3], latest, permit)
    end
  end
  s.seen = now
end

local function scaled(time, new, old) return now + math.ceil((time - now) * new / old) end

local function gates_anew(wanted)
  local found = {}
  for m, new in ipairs(wanted) do
    found[m] = #intervals == 0 and (s.granted > 0 and now + buckets[m].burst * new or 0) or now
    for n, old in ipairs(intervals) do
      found[m] = math.max(found[m], scaled(math.max(now, gates[n]), new, old))
    end
  end
  return found
end

local function rescale()
  local wanted, moved = {}, false
  for n, bucket in ipairs(buckets) do
    wanted[n] = math.ceil(bucket.interval * MICRO / s.factor)
    moved = moved or (bases[n] ~= nil and bases[n] ~= bucket.interval)
  end
  if #wanted ~= #intervals then
    gates, moved = gates_anew(wanted), true
  else
    for n, new in ipairs(wanted) do
      local old = intervals[n]
      for _, times in ipairs({gates, tats}) do
        if times[n] > now and old ~= new then times[n] = scaled(times[n], new, old) end
      end
    end
  end
  if moved then tats = {unpack(gates)} end
  bases, intervals = {}, wanted
  for n, bucket in ipairs(buckets) do bases[n] = bucket.interval end
end

local function bound(latest)
  for _, name in ipairs({'paused_until', 'open_until', 'line'}) do
    s[name] = math.min(s[name], latest)
  end
  s.probe_until = math.min(s.probe_until, latest - AHEAD + s.lease)
  for n, bucket in ipairs(buckets) do
    gates[n] = math.min(gates[n], latest + bucket.burst * intervals[n])
    tats[n] = math.min(tats[n], latest + bucket.burst * intervals[n])
  end
end

local function begin_window()
  s.good_from, s.used, s.tried, s.erred, s.slowed = now, 0, 0, 0, 0
end

local function errs() return rules.errors > 0 and s.erred * MICRO > rules.errors * s.tried end

local function catch_up()
  if #buckets == 0 then s.factor = MICRO end
  s.good_from, s.counted_from = math.min(s.good_from, now), math.min(s.counted_from, now)
  if s.good_from == 0 then
    s.good_from = now
  elseif now - s.good_from >= GOOD_WINDOW then
    local busy = false
    for _, t in ipairs(intervals) do busy = busy or 2 * s.used * t >= now - s.good_from end
    if busy and s.factor < MICRO and not (s.open_until > 0 or s.slowed > 0 or errs()) then
      s.factor = math.min(MICRO, s.factor + STEP)
    end
    begin_window()
  end
  rescale()
  bound(now + AHEAD)
end

local function fit(times)
  local at = 0
  for n, bucket in ipairs(buckets) do
    at = math.max(at, times[n] - math.max(bucket.burst, ask.cost) * intervals[n])
  end
  return at
end

local function in_line(base)
  local share = rules.concurrency > 0 and rules.concurrency or 10
  s.line = math.max(s.line, base) + math.max(1000, math.floor(s.hold / share))
  return s.line
end

local function learn_hold(taken)
  local before = s.hold
  s.hold = math.floor((7 * before + math.max(0, now - taken)) / 8)
  if s.line > now and s.hold < before then
    s.line = now + math.floor((s.line - now) * (s.hold / before))
  end
end

local function rest_until(time)
  for n, bucket in ipairs(buckets) do
    gates[n] = math.max(gates[n], time + bucket.burst * intervals[n])
    tats[n] = math.max(tats[n], time + bucket.burst * intervals[n])
  end
end

load()
