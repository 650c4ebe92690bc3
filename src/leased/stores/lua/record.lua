-- What every script begins with: the store's time, and the record of one key. REPLAY and RETENTION (µs) stand before
-- this text. A script reads, decides, and only then writes; it brings no functions along that it does not use, for
-- they are made anew each time.
--
-- KEYS: the record, alone, so that a lock never lies in two places while a cluster moves its slot. ARGV[1]: what is
-- added to the time, 0 except in tests. Times are microseconds: whole numbers, which Lua keeps exactly below 2^53.
--
-- It is a hash. In its field 'record' is a packed list; an open key of which only its last fencing token is known has
-- that instead. Marks are fields of their own, so that no script reads or writes more than those that it needs, however
-- many there are. A second name for them would be simpler, but while a cluster moves a slot no script can use two names
-- of which one does not exist. MARKS in the list is nil, or {first number in the line, last number, until when the last
-- one counts}: see marks.

local FORMAT = 1
local TOKEN, OWNER, HELD_BY, METADATA, FENCE, RENEWAL, ACQUIRED, EXPIRES, FREE = 2, 3, 4, 5, 6, 7, 8, 9, 10
local DEADLINE, TTL, AT_LEAST, DELAY, LATE, FORCED, MARKS = 11, 12, 13, 14, 15, 16, 17
local FIRST, LAST, UNTIL = 1, 2, 3

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2] + ARGV[1]

local text = redis.pcall('HGET', KEYS[1], 'record')
local readable, record, last, live = true, nil, 0, false
local fresh, gone = {}, {}  -- fields of marks to write and to drop
if type(text) == 'table' then
  if string.sub(text['err'], 1, 9) ~= 'WRONGTYPE' then redis.call('HGET', KEYS[1], 'record') end
  readable = false
elseif text then
  last = string.match(text, '^%d+$') and tonumber(text)
  readable = not last or last < 9007199254740992
  if not last then
    readable, record = pcall(cmsgpack.unpack, text)
    readable = readable and type(record) == 'table' and record[1] == FORMAT and #record >= FORCED
    if readable then
      last = record[FENCE]
      live = record[TOKEN] and now < record[EXPIRES]
    end
  end
end
