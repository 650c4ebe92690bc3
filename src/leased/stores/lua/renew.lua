-- Uses: saving, showing.
-- ARGV[2..]: token, ttl, number. A look is a renewal whose number is above none.

if not readable then return {now, 'unreadable'} end
local token, number = ARGV[2], tonumber(ARGV[4])

if live and record[TOKEN] == token then
  if number > record[RENEWAL] then
    record[RENEWAL], record[TTL] = number, tonumber(ARGV[3])
    record[EXPIRES] = math.min(now + record[TTL], record[DEADLINE])
    local at_least = math.min(record[ACQUIRED], now) + record[AT_LEAST]
    record[FREE] = math.max(record[EXPIRES] + record[DELAY], at_least)
  end
  if number >= 0 then save() end  -- also what is there already: see acquire
  return held()
end
if record and record[TOKEN] == token then
  return {now, 'lost', now >= record[DEADLINE] and 'max_hold' or 'expired'}
end
-- Uses: marks.
local reason = marked(token)
if reason == RETAKEN then return {now, 'lost', 'retaken'} end
if reason == FORCE_RELEASED then return {now, 'lost', 'force_released'} end
return {now, 'lost', live and 'taken' or 'expired'}
