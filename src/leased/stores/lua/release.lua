-- Uses: saving, ending.
-- ARGV[2..]: token, late.

if not readable then return {now, 'unreadable'} end
local mine = token == ARGV[2]

if ARGV[3] == '1' or (mine and late == 1) then
  -- Uses: marks, marking.
  mark(ARGV[2], ENDED)
  if not (mine and live) then save() end
end
if not mine then return {now, 'not_holder'} end
if not live then return {now, 'expired'} end
finish(math.min(acquired, now) + at_least, 0)
return {now, ''}
