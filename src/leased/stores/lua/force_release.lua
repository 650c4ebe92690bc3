-- Uses: marks, marking, saving, ending.
-- ARGV[2]: the fencing token it is aimed at, or ''. A record that cannot be read goes, if only the key is named.
-- Answers '1' where something ended or opened, else '0'.

local aim = ARGV[2]
if not readable then
  if aim ~= '' then return at .. '0' end
  redis.call('DEL', KEYS[1])
  redis.pcall('PUBLISH', KEYS[1], '')
  return at .. '1'
end
if not known or (aim ~= '' and tonumber(aim) ~= fence) then return at .. '0' end
if live then
  mark(token, FORCE_RELEASED)
  finish(now + delay, 1)
elseif now < free and forced == 0 then
  if token ~= '' and late == 1 then mark(token, ENDED) end
  finish(now, 0)
else
  return at .. '0'
end
return at .. '1'
