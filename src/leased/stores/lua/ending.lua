-- The key opens at an instant; nothing is kept but that, the fencing token and the marks.
local function finish(free, forced)
  record = {FORMAT, false, '', '', '', record[FENCE], 0, 0, 0, free, 0, 0, 0, 0, false, forced, record[MARKS]}
  save()
  redis.pcall('PUBLISH', KEYS[1], '')  -- a hint: an access list may forbid it
end
