-- Write a record with marks for so long, and all marks that changed.
local function keep(write, value, milliseconds)
  if not hash then redis.call('DEL', KEYS[1]) end
  write('HSET', KEYS[1], 'record', value, unpack(fresh or {}))
  redis.call('PEXPIRE', KEYS[1], milliseconds)
  if gone and gone[1] then redis.call('HDEL', KEYS[1], unpack(gone)) end
end
