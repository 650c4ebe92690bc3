-- For an ended token its hash is a field: until when it is remembered, why it ended, and its number in the line. For
-- each number in the line there is a field with the token: those that count no more are found at its beginning.
local ENDED, RETAKEN, FORCE_RELEASED = 0, 1, 2

local function remembered(ended)
  local found = redis.call('HGET', KEYS[1], ended)
  if not found then return 0 end
  local till, reason, number = string.match(found, '^(%d+) (%d+) (%d+)$')
  return tonumber(till), tonumber(reason), tonumber(number)
end

-- Why a token has ended, as long as that is remembered.
local function marked(ended)
  if now >= marks_until then return nil end
  local till, reason = remembered(ended)
  return now < till and reason or nil
end
