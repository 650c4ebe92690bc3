"""A guard for writes to Redis or Valkey: one command runs only if no later lease has written there. One script does it.

The clients are redis-py's own, made by the caller, who also closes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leased.errors import InvalidRequest
from leased.fences import _rule

if TYPE_CHECKING:
    import redis
    import redis.asyncio

_SCRIPT = """
local seen = redis.call('GET', KEYS[1])
if seen then
  if not tonumber(seen) then return redis.error_reply('ERR the guard holds something that is no fencing token') end
  if tonumber(seen) > tonumber(ARGV[1]) then return {0, seen} end
end
local answer = redis.pcall(unpack(ARGV, 2))
if type(answer) == 'table' and answer.err then return answer end
if seen ~= ARGV[1] then redis.call('SET', KEYS[1], ARGV[1]) end
return {1, answer}
"""


class RedisGuard:
    """Lets a command through only from the newest lease that has written. `name` is the Redis key that keeps its token.

    Give the guard a key that nothing else writes and that never expires. In a cluster the guard and what is written
    have to share a hash tag: `{report}:guard` and `{report}`.
    """

    def __init__(self, client: redis.Redis, name: str) -> None:
        self._client = client
        self.name = name

    def write(self, *command: Any, fencing_token: int | None) -> Any:
        """Run one command, such as `write("SET", "report", text, fencing_token=…)`, and give the server's answer.

        Raises `StaleFencingToken`, and then nothing was written; `InvalidRequest` without a token or a command; and
        what redis-py raises, after which the write may have happened or not.
        """
        token = _checked(command, fencing_token)
        answer: Any = self._client.eval(_SCRIPT, 1, self.name, token, *command)
        return _read(answer, self.name, fencing_token=token)


class AsyncRedisGuard:
    """As `RedisGuard`, for redis-py's asyncio client."""

    def __init__(self, client: redis.asyncio.Redis, name: str) -> None:
        self._client = client
        self.name = name

    async def write(self, *command: Any, fencing_token: int | None) -> Any:
        """As `RedisGuard.write`."""
        token = _checked(command, fencing_token)
        answer: Any = await self._client.eval(_SCRIPT, 1, self.name, token, *command)
        return _read(answer, self.name, fencing_token=token)


def _checked(command: tuple[Any, ...], fencing_token: int | None) -> int:
    token = _rule.presented(fencing_token)
    if not command:
        raise InvalidRequest("a guarded write needs the command to run", hint='such as write("SET", name, value, …)')
    return token


def _read(answer: Any, name: str, *, fencing_token: int) -> Any:
    written, told = answer
    if not written:
        _rule.check(name, fencing_token=fencing_token, seen=int(told))
    return told
