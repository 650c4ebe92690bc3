-- Remember from now that a token has ended; the first reason stands. It has to be saved. For each that comes, up to two
-- that count no more go.
local function mark(token, reason)
  reason = marked(token) or reason
  record = record or {FORMAT, false, '', '', '', last, 0, 0, 0, 0, 0, 0, 0, 0, false, false}
  local marks = record[MARKS] or {1, 0, 0}
  record[MARKS] = {marks[FIRST], marks[LAST] + 1, math.max(marks[UNTIL], now + REPLAY)}
  for number = marks[FIRST], math.min(marks[FIRST] + 1, marks[LAST]) do
    local old = redis.call('HGET', KEYS[1], number)
    local till, _, newest = remembered(old or '')
    if newest == number and now < till then break end
    gone[#gone + 1] = number
    if newest == number and old ~= token then gone[#gone + 1] = old end
    record[MARKS][FIRST] = number + 1
  end
  local number = record[MARKS][LAST]
  fresh = {token, string.format('%.0f %d %d', now + REPLAY, reason, number), number, token}
end
