-- Uses: saving, showing.
-- ARGV[2..]: token, ttl, number. A look is a renewal whose number is above none.
-- Answers 'h' as `held`, or 'l' and why it is lost.

if not readable then return at .. 'u' end
local mine, number = token == ARGV[2], tonumber(ARGV[4])

if live and mine then
  if number > math.max(renewal, 0) then
    renewal, ttl = number, tonumber(ARGV[3])
    expires = math.min(now + ttl, deadline)
    free = math.max(expires + delay, math.min(acquired, now) + at_least)
  end
  if number >= 0 then save() end  -- also what is there already: see acquire
  return held()
end
if mine then return at .. 'l' .. (now >= deadline and 'max_hold' or 'expired') end
-- Uses: marks.
local reason = marked(ARGV[2])
if reason == RETAKEN then return at .. 'lretaken' end
if reason == FORCE_RELEASED then return at .. 'lforce_released' end
return at .. 'l' .. (live and 'taken' or 'expired')
