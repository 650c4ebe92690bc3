-- Marks of ended tokens: the score is 4 * (ms until which the token is remembered) + the reason.

local ENDED, RETAKEN, FORCE_RELEASED = 0, 1, 2

local function marked(token)
  local score = redis.call('ZSCORE', KEYS[2], token)
  if not score then return nil end
  local reason = score % 4
  return now < (score - reason) / 4 * 1000 and reason or nil
end
