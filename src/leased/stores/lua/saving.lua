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
  if marks_until > 0 and now >= marks_until then
    redis.call('DEL', KEYS[1])
    first_mark, last_mark, marks_until = 1, 0, 0
  end
  if token ~= '' or now < free or marks_until > 0 then
    value = struct.pack(LAYOUT, FORMAT, #token, token, fence, renewal, acquired, expires, free, deadline, ttl,
      at_least, delay, late, forced, first_mark, last_mark, marks_until, #owner, owner, #seen, seen)
  else
    value = string.format('%.0f', fence)
  end
  write('HSET', KEYS[1], 'record', value, unpack(fresh))
  redis.call('PEXPIRE', KEYS[1], math.ceil((over - now + kept) / 1000))
  if gone[1] then redis.call('HDEL', KEYS[1], unpack(gone)) end
end
