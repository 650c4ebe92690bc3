local function extend(ttl)
  record[TTL] = ttl
  record[EXPIRES] = math.min(now + ttl, record[DEADLINE])
  record[FREE] = math.max(record[EXPIRES] + record[DELAY], math.min(record[ACQUIRED], now) + record[AT_LEAST])
end

-- The record outlives its lease for the sake of the fencing token, and of a token that must still be refused.
local function save(set)
  local over = math.max(record[FREE], now)
  if record[LATE] then over = math.max(over, record[EXPIRES] + REPLAY) end
  set('SET', KEYS[1], cmsgpack.pack(record), 'PX', math.ceil((over - now + RETENTION) / 1000))
end
