-- Uses: saving, ending.
-- ARGV[2..]: token, late.

if not readable then return {now, 'unreadable'} end
local token = ARGV[2]
local mine = record and record[TOKEN] == token

if ARGV[3] == '1' or (mine and record[LATE]) then
  -- Uses: marks, marking.
  mark(token, ENDED)
  if not (mine and live) then save() end
end
if not mine then return {now, 'not_holder'} end
if not live then return {now, 'expired'} end
finish(math.min(record[ACQUIRED], now) + record[AT_LEAST], false)
return {now, ''}
