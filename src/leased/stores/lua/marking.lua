local function mark(token, reason, set)
  reason = marked(token) or reason
  set('ZADD', KEYS[2], string.format('%.0f', math.ceil((now + REPLAY) / 1000) * 4 + reason), token)
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('(%.0f', math.floor(now / 1000) * 4 + 4))
  redis.call('PEXPIRE', KEYS[2], math.ceil(REPLAY / 1000) + 1)
end
