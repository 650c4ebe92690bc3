-- What every script begins with: the store's time, the record of one key, and the marks of its ended tokens.
-- REPLAY and RETENTION (µs) stand before this text. A script reads, decides, and only then writes.
--
-- KEYS: the record, and a sorted set of the key's ended tokens. ARGV[1]: what is added to the time, 0 except in tests.
-- Times are microseconds: whole numbers, which Lua keeps exactly below 2^53.

local FORMAT = 1
local TOKEN, OWNER, HELD_BY, METADATA, FENCE, RENEWAL, ACQUIRED, EXPIRES, FREE = 2, 3, 4, 5, 6, 7, 8, 9, 10
local DEADLINE, TTL, AT_LEAST, DELAY, LATE, FORCED = 11, 12, 13, 14, 15, 16

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2] + ARGV[1]

local text = redis.pcall('GET', KEYS[1])
local readable, record = true, false
if type(text) == 'table' then
  if string.sub(text['err'], 1, 9) ~= 'WRONGTYPE' then redis.call('GET', KEYS[1]) end
  readable = false
elseif text then
  readable, record = pcall(cmsgpack.unpack, text)
  readable = readable and type(record) == 'table' and record[1] == FORMAT and #record == FORCED
end

local function whole(number)
  return string.format('%.0f', number)
end

-- A full memory refuses new values, and must not keep a lease from ending or going on: after a write that needs no
-- memory a script may go on writing.
local function write(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply['err'] then
    redis.call('PERSIST', KEYS[1])
    redis.call(...)
  end
end

local function holds(token)
  return record and record[TOKEN] == token and now < record[EXPIRES]
end

local function extend(ttl)
  record[TTL] = ttl
  record[EXPIRES] = math.min(now + ttl, record[DEADLINE])
  record[FREE] = math.max(record[EXPIRES] + record[DELAY], record[ACQUIRED] + record[AT_LEAST])
end

-- The record outlives its lease for the sake of the fencing token, and of a token that must still be refused.
local function save(set)
  local over = record[FREE]
  if record[LATE] then over = math.max(over, record[EXPIRES] + REPLAY) end
  local kept = math.ceil((math.max(over - now, 0) + RETENTION) / 1000)
  set('SET', KEYS[1], cmsgpack.pack(record), 'PX', whole(kept))
end

-- The key opens at an instant, and everything but that and the fencing token is forgotten.
local function finish(free, forced)
  record[TOKEN], record[OWNER], record[HELD_BY], record[METADATA] = false, '', '', ''
  record[FREE], record[LATE], record[FORCED] = free, false, forced
  save(write)
  redis.pcall('PUBLISH', KEYS[1], '')  -- a hint: an access list may forbid it
end

-- Marks: the score is 4 * (ms until which the token is remembered) + the reason.
local ENDED, RETAKEN, FORCE_RELEASED = 0, 1, 2

local function marked(token)
  local score = redis.call('ZSCORE', KEYS[2], token)
  if not score then return nil end
  local reason = score % 4
  return now < (score - reason) / 4 * 1000 and reason or nil
end

local function mark(token, reason, set)
  reason = marked(token) or reason
  set('ZADD', KEYS[2], whole(math.ceil((now + REPLAY) / 1000) * 4 + reason), token)
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(' .. whole(math.floor(now / 1000) * 4 + 4))
  redis.call('PEXPIRE', KEYS[2], whole(math.ceil(REPLAY / 1000) + 1))
end

local function held()
  return {now, 'held', record[FENCE], record[RENEWAL], record[TTL], record[EXPIRES], record[OWNER]}
end

-- What anyone may see.
local function shown(word)
  if record and record[TOKEN] and now < record[EXPIRES] then
    return {now, word, 'held', record[FREE], record[FENCE], record[EXPIRES], record[ACQUIRED], record[OWNER],
      record[HELD_BY], record[METADATA]}
  elseif record and now < record[FREE] then
    return {now, word, 'closed', record[FREE], record[FENCE]}
  end
  return {now, word, 'free'}
end
