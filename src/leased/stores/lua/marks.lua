local ENDED, RETAKEN, FORCE_RELEASED = 0, 1, 2

-- Why a token has ended, as long as that is remembered.
local function marked(token)
  local score = record and record[MARKS] and record[MARKS][token]
  return score and now < math.floor(score / 4) * 1000 and score % 4 or nil
end
