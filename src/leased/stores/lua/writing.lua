-- A full memory refuses new values, and must not keep a lease from ending or going on: after a write that needs no
-- memory a script may go on writing.
local function write(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply['err'] then
    redis.call('PERSIST', KEYS[1])
    redis.call(...)
  end
end

local function mark(token, reason, set)
  reason = marked(token) or reason
  set('ZADD', KEYS[2], string.format('%.0f', math.ceil((now + REPLAY) / 1000) * 4 + reason), token)
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('(%.0f', math.floor(now / 1000) * 4 + 4))
  redis.call('PEXPIRE', KEYS[2], math.ceil(REPLAY / 1000) + 1)
end
