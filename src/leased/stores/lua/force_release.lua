-- Uses: marks, marking, saving, ending.
-- ARGV[2]: the fencing token it is aimed at, or ''. A record that cannot be read goes, if only the key is named.

local aim = ARGV[2]
if not readable then
  if aim ~= '' then return {now, 0} end
  redis.call('DEL', KEYS[1])
  redis.pcall('PUBLISH', KEYS[1], '')
  return {now, 1}
end
if not record or (aim ~= '' and tonumber(aim) ~= record[FENCE]) then return {now, 0} end
if live then
  mark(record[TOKEN], FORCE_RELEASED)
  finish(now + record[DELAY], true)
elseif now < record[FREE] and not record[FORCED] then
  if record[TOKEN] and record[LATE] then mark(record[TOKEN], ENDED) end
  finish(now, false)
else
  return {now, 0}
end
return {now, 1}
