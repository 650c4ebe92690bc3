-- The key opens at an instant; nothing is kept but that, the fencing token and the marks. One that is open now stays so,
-- also when the server's clock is set back.
local function finish(free, forced)
  record = {FORMAT, false, '', '', '', record[FENCE], 0, 0, 0, free > now and free or 0, 0, 0, 0, 0, false, forced,
    record[MARKS]}
  save()
  redis.pcall('PUBLISH', KEYS[1], '')  -- a hint: an access list may forbid it
end
