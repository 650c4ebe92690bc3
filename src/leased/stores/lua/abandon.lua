-- Uses: marks, marking, saving, ending.
-- ARGV[2..]: token, heard ('' for however often). Answers 'a', or 'k' (kept) where somebody else was told of it.

if not readable then return at .. 'u' end
local mine = live and token == ARGV[2]
if mine and ARGV[3] ~= '' and (renewal >= 0 or -renewal > tonumber(ARGV[3])) then return at .. 'k' end
mark(ARGV[2], ENDED)
if mine then finish(now, 0) else save() end
return at .. 'a'
