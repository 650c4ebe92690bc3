-- Uses: marks, marking, saving, ending.
-- ARGV[2]: token. Answers 'a'.

if not readable then return at .. 'u' end
local mine = live and token == ARGV[2]
mark(ARGV[2], ENDED)
if mine then finish(now, 0) else save() end
return at .. 'a'
