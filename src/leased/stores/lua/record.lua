-- What every script begins with: the store's time, and the record of one key. REPLAY and RETENTION (µs) stand before
-- this text. A script reads, decides, and only then writes; it brings no functions along that it does not use, for
-- they are made anew each time.
--
-- KEYS: the record, alone, so that a lock never lies in two places while a cluster moves its slot. ARGV[1]: what is
-- added to the time, 0 except in tests. Times are microseconds: whole numbers, which Lua keeps exactly below 2^53.
--
-- It is a string of all that LAYOUT names; of an open key only the last fencing token may be left, as text. Where marks
-- count it is a hash instead, and that string the field 'record': marks are fields of their own, so that no script reads
-- or writes more than those that it needs, however many there are. A second name for them would be simpler, but while a
-- cluster moves a slot no script can use two names of which one does not exist. In the record are the first and the last
-- number of their line, and until when the last one counts, 0 where there are none: see marks.
--
-- An answer is one string, for a list costs the server as much as all the rest: the time, a letter, and what belongs to
-- that. 'u' says that the record cannot be read.

local FORMAT, LAYOUT = 2, '<BBc0dddddddddBBdddI4c0I4c0'

local now = redis.call('TIME')
now = now[1] * 1000000 + now[2] + ARGV[1]

local text, hash = redis.pcall('GET', KEYS[1]), false
local readable, known, live, format = true, false, false, nil
local token, owner, seen = '', '', ''  -- whose lease it is, and what others may see of him, as he packed it
local fence, renewal, acquired, expires, free, deadline, ttl, at_least, delay = 0, 0, 0, 0, 0, 0, 0, 0, 0
local late, forced, first_mark, last_mark, marks_until = 0, 0, 1, 0, 0
local fresh, gone  -- fields of marks to write and to drop, once there are any

if type(text) == 'table' then
  if string.sub(text['err'], 1, 9) ~= 'WRONGTYPE' then redis.call('GET', KEYS[1]) end
  text, hash = redis.pcall('HGET', KEYS[1], 'record'), true
end
if type(text) == 'table' or (hash and not text) then  -- neither: other data
  readable = false
elseif text and string.byte(text) == FORMAT then
  readable, format, token, fence, renewal, acquired, expires, free, deadline, ttl, at_least, delay, late, forced,
    first_mark, last_mark, marks_until, owner, seen = pcall(struct.unpack, LAYOUT, text)
  known = readable
  live = known and token ~= '' and now < expires
elseif text then
  fence = string.match(text, '^%d+$') and tonumber(text)
  readable = fence and fence < 9007199254740992
end

local at = struct.pack('<d', now)  -- what every answer begins with
