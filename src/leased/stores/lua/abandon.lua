-- Uses: marks, marking, saving, ending.
-- ARGV[2]: token.

if not readable then return {now, 'unreadable'} end
local mine = live and token == ARGV[2]
mark(ARGV[2], ENDED)
if mine then finish(now, 0) else save() end
return {now, ''}
