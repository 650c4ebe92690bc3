-- 'h': fencing token, renewal number, ttl, expiry, owner.
local function held()
  return struct.pack('<dc1dddd', now, 'h', fence, math.max(renewal, 0), ttl, expires) .. owner
end

-- What anyone may see, after the letter: 'f' (free); 'c' (closed), when it opens, fencing token; or 'h' (held) and the
-- same, expiry, when it was acquired, owner, and what the owner lets others see.
local function shown(letter)
  if live then
    return struct.pack('<dc1c1ddddI4c0', now, letter, 'h', free, fence, expires, acquired, #owner, owner) .. seen
  end
  if now < free then return struct.pack('<dc1c1dd', now, letter, 'c', free, fence) end
  return at .. letter .. 'f'
end
