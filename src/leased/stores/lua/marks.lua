local ENDED, RETAKEN, FORCE_RELEASED = 0, 1, 2
local UNTIL, REASON = 1, 2

-- Why a token has ended, as long as that is remembered.
local function marked(token)
  local found = record and record[MARKS] and record[MARKS][token]
  return found and now < found[UNTIL] and found[REASON] or nil
end
