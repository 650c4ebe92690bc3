-- Uses: marks.
-- ARGV[2..]: token, owner ('' or '=' before it), ttl, late, max_hold, hold_at_least, lock_delay, held_by, metadata.
-- Answers a new grant, 'granted' or 'retaken' from the same owner, with its fencing token alone: whoever asked knows the
-- rest.

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
  marks = record[MARKS]
end

local fence, ttl, max_hold = math.max(last + 1, now), tonumber(ARGV[4]), tonumber(ARGV[6])
local at_least, delay = tonumber(ARGV[7]), tonumber(ARGV[8])
local expires = now + math.min(ttl, max_hold)
local free = math.max(expires + delay, now + at_least)
local over = late and math.max(free, expires + REPLAY) or free
if marks and now >= marks[UNTIL] then
  redis.call('DEL', KEYS[1])
  marks = nil
end
local granted = {FORMAT, token, owner, ARGV[9], ARGV[10], fence, 0, now, expires, free, now + max_hold, ttl, at_least,
  delay, late, false, marks}
redis.call('HSET', KEYS[1], 'record', cmsgpack.pack(granted), unpack(fresh))
redis.call('PEXPIRE', KEYS[1], math.ceil((over - now + RETENTION) / 1000))
if gone[1] then redis.call('HDEL', KEYS[1], unpack(gone)) end
return {now, word, fence, expires}
