-- Uses: marks.
-- ARGV[2..]: token, owner ('' or '=' before it), ttl, late, max_hold, hold_at_least, lock_delay, held_by, metadata.
-- Answers a new grant, 'granted' or 'retaken' from the same owner, with its fencing token alone, for whoever asked knows the rest.

if not readable then return {now, 'unreadable'} end
local token, owner, late, marks, word = ARGV[2], ARGV[3], ARGV[5] == '1', nil, 'granted'

if record then
  -- Uses: marking, saving, showing.
  if live and record[TOKEN] == token then
    record[LATE] = record[LATE] or late
    save()  -- also what is there already: WAIT, of whoever asks again, counts what this connection wrote
    return held()
  end
  if record[TOKEN] == token or marked(token) then return shown('ended') end
  if live then
    if owner == '' or owner ~= record[OWNER] then return shown('contended') end
    mark(record[TOKEN], RETAKEN)
    word = 'retaken'
  elseif now < record[FREE] then
    return shown('contended')
  elseif record[TOKEN] and record[LATE] then
    mark(record[TOKEN], ENDED)
  end
  marks = remembered()
end

local fence, ttl, max_hold = math.max(last + 1, now), tonumber(ARGV[4]), tonumber(ARGV[6])
local at_least, delay = tonumber(ARGV[7]), tonumber(ARGV[8])
local expires = now + math.min(ttl, max_hold)
local free = math.max(expires + delay, now + at_least)
local over = late and math.max(free, expires + REPLAY) or free
redis.call('SET', KEYS[1], cmsgpack.pack({FORMAT, token, owner, ARGV[9], ARGV[10], fence, 0, now, expires, free,
  now + max_hold, ttl, at_least, delay, late, false, marks}), 'PX', math.ceil((over - now + RETENTION) / 1000))
return {now, word, fence, expires}
