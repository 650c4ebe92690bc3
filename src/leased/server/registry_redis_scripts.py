"""What the registry runs on a Redis server: small scripts, each one step. Nothing is sent from here."""

from __future__ import annotations

from collections.abc import Mapping

# An error undoes nothing of a script, so the line, which alone could fail, always comes before the change.
_LINE = """
local function append(line, most)
    local number = redis.call('HINCRBY', KEYS[1], 'lines', 1)
    redis.call('XADD', KEYS[2], 'MAXLEN', '~', most, number .. '-0', 'line', line)
end
"""

# ARGV: mark, '1' where a registry may begin, line, most lines; then what the script needs.
_CHECKED = """
local mark = redis.call('HGET', KEYS[1], 'mark')
if mark and mark ~= ARGV[1] then return mark end
if not mark then
    if ARGV[2] == '' then return '' end
    redis.call('HSET', KEYS[1], 'mark', ARGV[1])
end
"""

_ADD = """
if redis.call('HEXISTS', KEYS[1], 'credential:' .. ARGV[5]) == 1 then return 0 end
append(ARGV[3], ARGV[4])
redis.call('HSET', KEYS[1], 'credential:' .. ARGV[5], ARGV[6])
redis.call('ZADD', KEYS[3], 0, ARGV[5])
return 1
"""

_REVOKE = """
if not redis.call('ZSCORE', KEYS[3], ARGV[5]) then return 0 end
if redis.call('HEXISTS', KEYS[1], 'revoked:' .. ARGV[5]) == 1 then return 0 end
append(ARGV[3], ARGV[4])
redis.call('HSET', KEYS[1], 'revoked:' .. ARGV[5], ARGV[6])
return 1
"""

_PUT = """
local name = redis.call('HGET', KEYS[1], 'rules:' .. ARGV[5])
if name and name ~= ARGV[6] then return 0 end
append(ARGV[3], ARGV[4])
redis.call('HSET', KEYS[1], 'rules:' .. ARGV[5], ARGV[6], 'sources:' .. ARGV[5], ARGV[7])
return 1
"""

_DELETE = """
if redis.call('HGET', KEYS[1], 'rules:' .. ARGV[5]) ~= ARGV[6] then return 0 end
append(ARGV[3], ARGV[4])
redis.call('HDEL', KEYS[1], 'rules:' .. ARGV[5], 'sources:' .. ARGV[5])
return 1
"""

# KEYS: digests by id, their ends. ARGV: id, digest, end, now, most, milliseconds until the end.
_BIND = """
local function forget(ids)
    for _, id in ipairs(ids) do
        redis.call('HDEL', KEYS[1], id)
        redis.call('ZREM', KEYS[2], id)
    end
end
local ends = redis.call('ZSCORE', KEYS[2], ARGV[1])
if ends and tonumber(ends) > tonumber(ARGV[4]) then return redis.call('HGET', KEYS[1], ARGV[1]) end
forget(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[4], 'LIMIT', 0, 20))
if redis.call('ZCARD', KEYS[2]) >= tonumber(ARGV[5]) then forget(redis.call('ZRANGE', KEYS[2], 0, 0)) end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[1])
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[6] + 60000) end
return ARGV[2]
"""

# KEYS: a name of each budget. ARGV: cost and span of each, in microseconds. A level further off than the span was left
# by a clock that went back since, or by a larger budget: what it means is that nothing is left.
_LEVELS = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function keep(at, full)
    redis.call('SET', KEYS[at], string.format('%.0f', full), 'PX', math.ceil((full - now) / 1000) + 1)
end
local function level(at)
    local kept = tonumber(redis.call('GET', KEYS[at]) or '0')
    local most = now + tonumber(ARGV[2 * at])
    if kept > most then keep(at, most) end
    return math.min(math.max(kept, now), most)
end
"""

_TAKE = """
local levels, late, refused = {}, {}, false
for at = 1, #KEYS do
    levels[at] = level(at) + tonumber(ARGV[2 * at - 1])
    late[at] = math.max(0, levels[at] - now - tonumber(ARGV[2 * at]))
    refused = refused or late[at] > 0
end
if not refused then
    for at = 1, #KEYS do keep(at, levels[at]) end
end
return late
"""

_SPEND = """
for at = 1, #KEYS do
    keep(at, math.min(level(at) + tonumber(ARGV[2 * at - 1]), now + tonumber(ARGV[2 * at])))
end
return 0
"""

# KEYS: per project and key the list of its holds; when each was written last; counts. ARGV: how many of a key, and in
# all, how many begin; then of each, the begun ones first: place, mark, number, begin, instant and kind of end, reason.
_HOLDS = """
local each, total, begun = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local function of(place)
    local text = redis.call('HGET', KEYS[1], place)
    return text and cjson.decode(text) or {}
end
local function count(more) return redis.call('HINCRBY', KEYS[3], 'holds', more) end
local function begin(place, hold)
    local found = of(place)
    for _, one in ipairs(found) do
        if one[1] == hold[1] then return end
    end
    table.insert(found, hold)
    count(1)
    while #found > each do
        table.remove(found, 1)
        count(-1)
    end
    redis.call('HSET', KEYS[1], place, cjson.encode(found))
    redis.call('ZADD', KEYS[2], redis.call('HINCRBY', KEYS[3], 'written', 1), place)
end
local function finish(place, ending)
    local found, changed = of(place), false
    for _, one in ipairs(found) do
        local same = ending[1] == one[1] or (ending[1] == '' and ending[2] == one[2])
        local supposed = one[5] == 'expired' and (ending[5] ~= 'expired' or tonumber(ending[4]) > tonumber(one[4]))
        if same and (one[5] == '' or supposed) then
            one[4], one[5], one[6], changed = ending[4], ending[5], ending[6], true
        end
    end
    if changed then redis.call('HSET', KEYS[1], place, cjson.encode(found)) end
end
for at = 4, #ARGV, 7 do
    local given = {}
    for more = 1, 6 do given[more] = ARGV[at + more] end
    if (at - 4) / 7 < begun then begin(ARGV[at], given) else finish(ARGV[at], given) end
end
while count(0) > total do
    local place = redis.call('ZPOPMIN', KEYS[2])[1]
    if not place then return 0 end
    count(-#of(place))
    redis.call('HDEL', KEYS[1], place)
end
return 1
"""

ALL: Mapping[str, str] = {
    "add": _LINE + _CHECKED + _ADD,
    "revoke": _LINE + _CHECKED + _REVOKE,
    "put": _LINE + _CHECKED + _PUT,
    "delete": _LINE + _CHECKED + _DELETE,
    "line": _LINE + "append(ARGV[1], ARGV[2])\nreturn 1",
    "bind": _BIND,
    "take": _LEVELS + _TAKE,
    "spend": _LEVELS + _SPEND,
    "holds": _HOLDS,
}
"""Scripts by what they do."""
