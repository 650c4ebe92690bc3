-- The key opens at an instant; nothing is kept but that, the fencing token and the marks. One that is open now stays so,
-- also when the server's clock is set back.
local function finish(opens, by_force)
  token, owner, seen, free, forced = '', '', '', opens > now and opens or 0, by_force
  renewal, acquired, expires, deadline, ttl, at_least, delay, late = 0, 0, 0, 0, 0, 0, 0, 0
  save()
  redis.pcall('PUBLISH', KEYS[1], '')  -- a hint: an access list may forbid it
end
