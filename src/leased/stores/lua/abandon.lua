-- Uses: marks, marking, saving, ending.
-- ARGV[2]: token.

if not readable then return {now, 'unreadable'} end
local mine = live and record[TOKEN] == ARGV[2]
mark(ARGV[2], ENDED)
if mine then finish(now, false) else save() end
return {now, ''}
