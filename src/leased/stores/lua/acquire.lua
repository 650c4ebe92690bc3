-- Uses: marks.
-- ARGV[2..]: token, owner ('' or '=' before it), terms (packed: ttl, max_hold, hold_at_least, lock_delay, late), seen.
-- Answers 'g' for a new grant, 'r' where it took over from the same owner, and fencing token and expiry: whoever asked
-- knows the rest. Else 'h' as `held`, 'c' (contended) or 'e' (ended) as `shown`.

if not readable then return at .. 'u' end
local letter = 'g'
local wanted, span, least, pause, again = struct.unpack('<ddddB', ARGV[4])

if known then
  -- Uses: marking, saving, showing.
  if token == ARGV[2] and live then
    late = math.max(late, again)
    if renewal < 0 then renewal = renewal - 1 end
    save()  -- also what is there already: WAIT, of whoever asks again, counts what this connection wrote
    return held()
  end
  if token == ARGV[2] or marked(ARGV[2]) then return shown('e') end
  if live then
    if owner == '' or owner ~= ARGV[3] then return shown('c') end
    mark(token, RETAKEN)
    letter = 'r'
  elseif now < free then
    return shown('c')
  elseif token ~= '' and late == 1 then
    mark(token, ENDED)
  end
end

fence = math.max(fence + 1, now)
expires = now + math.min(wanted, span)
free = math.max(expires + pause, now + least)
local over = again == 1 and math.max(free, expires + REPLAY) or free
if now >= marks_until then first_mark, last_mark, marks_until = 1, 0, 0 end
local granted = struct.pack(LAYOUT, FORMAT, #ARGV[2], ARGV[2], fence, -1, now, expires, free, now + span, wanted, least,
  pause, again, 0, first_mark, last_mark, marks_until, #ARGV[3], ARGV[3], #ARGV[5], ARGV[5])
local milliseconds = math.ceil((over - now + RETENTION) / 1000)
if marks_until == 0 then
  redis.call('SET', KEYS[1], granted, 'PX', milliseconds)
else
  -- Uses: keeping.
  keep(redis.call, granted, milliseconds)
end
return struct.pack('<dc1dd', now, letter, fence, expires)
