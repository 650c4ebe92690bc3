-- A full memory refuses new values, and must not keep a lease from ending or going on: after a write that needs no
-- memory a script may go on writing.
local function write(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply['err'] then
    redis.call('PERSIST', KEYS[1])
    redis.call(...)
  end
end
