-- The marks that still count, or nil.
local function remembered()
  local marks = nil
  for token, found in pairs(record and record[MARKS] or {}) do
    if now < found[UNTIL] then
      marks = marks or {}
      marks[token] = found
    end
  end
  return marks
end

-- Remember from now that a token has ended; the first reason stands. It has to be saved.
local function mark(token, reason)
  reason = marked(token) or reason
  record = record or {FORMAT, false, '', '', '', last, 0, 0, 0, 0, 0, 0, 0, 0, false, false}
  record[MARKS] = remembered() or {}
  record[MARKS][token] = {now + REPLAY, reason}
end
