local function held()
  return {now, 'held', fence, renewal, ttl, expires, owner}
end

-- What anyone may see.
local function shown(word)
  if live then return {now, word, 'held', free, fence, expires, acquired, owner, seen} end
  if now < free then return {now, word, 'closed', free, fence} end
  return {now, word, 'free'}
end
