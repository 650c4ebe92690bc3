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
  local over, kept = math.max(record[FREE], now), record[FENCE] > 0 and RETENTION or REPLAY + 1000
  if record[LATE] then over = math.max(over, record[EXPIRES] + REPLAY) end
  local value = record
  local counting = record[MARKS] and now < record[MARKS][UNTIL]
  if record[MARKS] and not counting then
    redis.call('DEL', KEYS[1])
    record[MARKS] = nil
  end
  if record[TOKEN] or now < record[FREE] or counting then
    value = cmsgpack.pack(record)
  else
    value = string.format('%.0f', record[FENCE])
  end
  write('HSET', KEYS[1], 'record', value, unpack(fresh))
  redis.call('PEXPIRE', KEYS[1], math.ceil((over - now + kept) / 1000))
  if gone[1] then redis.call('HDEL', KEYS[1], unpack(gone)) end
end
