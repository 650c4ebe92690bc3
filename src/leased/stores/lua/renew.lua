-- Uses: saving, showing.
-- ARGV[2..]: token, ttl, number. A look is a renewal whose number is above none.

if not readable then return {now, 'unreadable'} end
local mine, number = token == ARGV[2], tonumber(ARGV[4])

if live and mine then
  if number > renewal then
    renewal, ttl = number, tonumber(ARGV[3])
    expires = math.min(now + ttl, deadline)
    free = math.max(expires + delay, math.min(acquired, now) + at_least)
  end
  if number >= 0 then save() end  -- also what is there already: see acquire
  return held()
end
if mine then return {now, 'lost', now >= deadline and 'max_hold' or 'expired'} end
-- Uses: marks.
local reason = marked(ARGV[2])
if reason == RETAKEN then return {now, 'lost', 'retaken'} end
if reason == FORCE_RELEASED then return {now, 'lost', 'force_released'} end
return {now, 'lost', live and 'taken' or 'expired'}
