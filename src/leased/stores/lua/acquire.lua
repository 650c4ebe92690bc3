-- ARGV[2..]: token, owner ('' or '=' before it), ttl, late, max_hold, hold_at_least, lock_delay, held_by, metadata.

if not readable then return {now, 'unreadable'} end
local token, owner, late = ARGV[2], ARGV[3], ARGV[5] == '1'

if holds(token) then
  if late and not record[LATE] then
    record[LATE] = true
    save(redis.call)
  end
  return held()
end
if (record and record[TOKEN] == token) or marked(token) then return shown('ended') end

local previous = 0
if record then
  local live = record[TOKEN] and now < record[EXPIRES]
  if live and (owner == '' or owner ~= record[OWNER]) then return shown('contended') end
  if not live and now < record[FREE] then return shown('contended') end
  if live then
    mark(record[TOKEN], RETAKEN, redis.call)
  elseif record[TOKEN] and record[LATE] then
    mark(record[TOKEN], ENDED, redis.call)
  end
  previous = record[FENCE]
end
record = {FORMAT, token, owner, ARGV[9], ARGV[10], math.max(previous + 1, now), 0, now, 0, 0, now + ARGV[6], 0,
  tonumber(ARGV[7]), tonumber(ARGV[8]), late, false}
extend(tonumber(ARGV[4]))
save(redis.call)
return held()
