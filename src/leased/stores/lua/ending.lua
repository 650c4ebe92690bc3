-- The lease ends; what stays is the fencing token and, where the key stays closed for a while, until when.
local function finish(free, forced)
  local value = string.format('%.0f', record[FENCE])
  if free > now then
    value = cmsgpack.pack({FORMAT, false, '', '', '', record[FENCE], 0, 0, 0, free, 0, 0, 0, 0, false, forced})
  end
  write('SET', KEYS[1], value, 'PX', math.ceil((math.max(free - now, 0) + RETENTION) / 1000))
  redis.pcall('PUBLISH', KEYS[1], '')  -- a hint: an access list may forbid it
end
