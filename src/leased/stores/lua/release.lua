-- ARGV[2..]: token, late. Answers 'f' (freed), 'n' (not the holder) or 'x' (expired).

if not readable then return at .. 'u' end
local mine = token == ARGV[2]

if mine and live and ARGV[3] == '0' and late == 0 and at_least == 0 and marks_until == 0 then  -- nearly always
  local reply = redis.pcall('SET', KEYS[1], string.format('%.0f', fence), 'PX', RETENTION / 1000)
  if not reply['err'] then
    redis.pcall('PUBLISH', KEYS[1], '')
    return at .. 'f'
  end
end

-- Uses: saving, ending.
if ARGV[3] == '1' or (mine and late == 1) then
  -- Uses: marks, marking.
  mark(ARGV[2], ENDED)
  if not (mine and live) then save() end
end
if not mine then return at .. 'n' end
if not live then return at .. 'x' end
finish(math.min(acquired, now) + at_least, 0)
return at .. 'f'
