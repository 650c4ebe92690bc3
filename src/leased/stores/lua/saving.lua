-- A full memory refuses new values, and must not keep a lease from ending or going on: after a write that needs no
-- memory a script may go on writing.
local function write(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply['err'] then
    redis.call('PERSIST', KEYS[1])
    redis.call(...)
  end
end

-- The record outlives its lease for the sake of the fencing token, and of tokens that must still be refused.
local function save()
  local value, over, kept = nil, math.max(free, now), fence > 0 and RETENTION or REPLAY + 1000
  if late == 1 then over = math.max(over, expires + REPLAY) end
  if now >= marks_until then first_mark, last_mark, marks_until = 1, 0, 0 end
  if token ~= '' or now < free or marks_until > 0 then
    value = struct.pack(LAYOUT, FORMAT, #token, token, fence, renewal, acquired, expires, free, deadline, ttl,
      at_least, delay, late, forced, first_mark, last_mark, marks_until, #owner, owner, #seen, seen)
  else
    value = string.format('%.0f', fence)
  end
  local milliseconds = math.ceil((over - now + kept) / 1000)
  if marks_until == 0 then
    write('SET', KEYS[1], value, 'PX', milliseconds)  -- in the place of marks, too, if they count no more
  else
    -- Uses: keeping.
    keep(write, value, milliseconds)
  end
end
