-- Remember from now that a token has ended; the first reason stands. It has to be saved. For each that comes, up to two
-- that count no more go.
local function mark(ended, reason)
  reason = marked(ended) or reason
  local before = last_mark
  gone = gone or {}
  last_mark, marks_until = before + 1, math.max(marks_until, now + REPLAY)
  for number = first_mark, math.min(first_mark + 1, before) do
    local old = redis.call('HGET', KEYS[1], number)
    local till, _, newest = remembered(old or '')
    if newest == number and now < till then break end
    gone[#gone + 1] = number
    if newest == number and old ~= ended then gone[#gone + 1] = old end
    first_mark = number + 1
  end
  fresh = {ended, string.format('%.0f %d %d', now + REPLAY, reason, last_mark), last_mark, ended}
end
