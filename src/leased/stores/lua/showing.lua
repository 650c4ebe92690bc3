local function held()
  return {now, 'held', record[FENCE], record[RENEWAL], record[TTL], record[EXPIRES], record[OWNER]}
end

-- What anyone may see.
local function shown(word)
  if live then
    return {now, word, 'held', record[FREE], record[FENCE], record[EXPIRES], record[ACQUIRED], record[OWNER],
      record[HELD_BY], record[METADATA]}
  elseif record and now < record[FREE] then
    return {now, word, 'closed', record[FREE], record[FENCE]}
  end
  return {now, word, 'free'}
end
