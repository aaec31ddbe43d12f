-- Give a permit back and learn how the call went.
-- ARGV[2] to ARGV[6]: permit, verdict, pause, jitter, as in ../decide.py, and where a pause was told as
-- a point in time, that point, else 0. Returns nothing.
ask = {
  permit = ARGV[2], verdict = ARGV[3],
  pause = tonumber(ARGV[4]), jitter = tonumber(ARGV[5]), instant = tonumber(ARGV[6]),
}

local function weigh()
  s.tried = s.tried + 1
  if ask.verdict == 'failed' then s.erred = s.erred + 1 end
  if #buckets > 0 and s.slowed == 0 and s.tried >= ERRORS_OF and errs() then
    s.slowed = 1
    s.slowings = s.slowings + 1
    s.factor = math.max(FLOOR, math.floor(s.factor * CUT_TENTHS / 10))
    rescale()
  end
end

local function throttle()
  s.throttled = s.throttled + 1
  if #buckets > 0 and s.paused_until <= now then
    s.factor = math.max(FLOOR, math.floor(s.factor * CUT_TENTHS / 10))
  end
  begin_window()
  local pause = ask.instant > 0 and ask.instant - now or ask.pause
  local time = now + math.min(LONGEST_PAUSE, math.max(SHORTEST_PAUSE, pause))
  s.paused_until = math.max(s.paused_until, time)
  rescale()
  rest_until(s.paused_until)
end

local function open()
  local pause = math.min(LONGEST_PAUSE, rules.breaker.pause * 2 ^ math.min(s.doublings, 20))
  s.open_until = now + pause + math.floor(pause * ask.jitter / 10000)
  s.doublings = s.doublings + 1
  s.openings = s.openings + 1
  s.probed, probe, s.probe_until = 0, '', 0
  s.fine, s.failed = 0, 0
  if #buckets > 0 then s.factor = math.min(s.factor, RAMP) end
  begin_window()
  rescale()
  rest_until(s.open_until)
end

local function count()
  if now - s.counted_from > rules.breaker.window then
    s.counted_from, s.fine, s.failed = now, 0, 0
  end
  if ask.verdict == 'fine' then
    s.fine = s.fine + 1
    return
  end
  s.failed = s.failed + 1
  local calls = s.fine + s.failed
  if calls >= rules.breaker.samples and s.failed * MICRO >= rules.breaker.ratio * calls then
    open()
  end
end

local function probed()
  if ask.verdict == 'failed' then
    open()
    return
  end
  s.probed = s.probed + 1
  if s.probed >= PROBES then
    s.open_until, s.doublings, s.probed = 0, 0, 0
    s.counted_from, s.fine, s.failed = now, 0, 0
  end
end

local taken = tonumber(redis.call('HGET', KEYS[4], ask.permit) or 0)
redis.call('ZREM', KEYS[3], ask.permit)
redis.call('HDEL', KEYS[4], ask.permit)
if taken > 0 then learn_hold(taken) end
catch_up()
local probing = s.open_until > 0 and probe == ask.permit
if probing then probe, s.probe_until = '', 0 end
if (ask.verdict == 'fine' or ask.verdict == 'failed') and s.open_until == 0 then weigh() end
if ask.verdict == 'throttled' then
  throttle()
elseif rules.breaker and ask.verdict ~= 'unclear' then
  if probing then
    probed()
  elseif s.open_until == 0 then
    count()
  end
end
s.seen = math.max(s.seen, now)
save()
