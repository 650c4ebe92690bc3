-- ARGV[2..]: token, late.

if not readable then return {now, 'unreadable'} end
local token = ARGV[2]
local mine = record and record[TOKEN] == token

if ARGV[3] == '1' or (mine and record[LATE]) then mark(token, ENDED, write) end
if not mine then return {now, 'not_holder'} end
if now >= record[EXPIRES] then return {now, 'expired'} end
finish(math.max(now, record[ACQUIRED] + record[AT_LEAST]), false)
return {now, ''}
