"""The registry on a Redis or Valkey server, for any number of replicas. It decides nothing; a call is one step.

What lets people in, or shuts them out, is in one record, so that no part of it can be lost without the others. A server
that has lost it lets nobody in: only the command line begins a registry.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from leased.checks import shown
from leased.errors import InvalidRequest, LeasedError, StoreNotUsable, StoreUnavailable
from leased.server import registry_redis_scripts as scripts
from leased.server.credentials import Credential, RuleSet
from leased.server.holds import HoldEnd, PastHold, Room
from leased.server.registry import MAX_PAGE, AuditLine
from leased.server.registry_silence import Silence
from leased.server.registry_texts import (
    read_credential,
    read_hold,
    read_line,
    read_rules,
    write_begin,
    write_credential,
    write_line,
    write_reason,
    write_rules,
)
from leased.server.usage import Use
from leased.stores._drivers import driver
from leased.targets import hide_secrets

_T = TypeVar("_T")

NAME = "{leased-registry}"
"""What all its names begin with. The braces keep them together on servers that spread names."""

MAX_REQUESTS = 100_000
"""Request ids remembered for one project; the one that would be forgotten first makes room."""

MAX_LINES = 100_000
"""Audit lines kept of one project, the newest: they are in the server's memory."""

MAX_CONNECTIONS = 16

_HOLDS_AT_ONCE = 200
_PARTS_AT_ONCE = 4_000
"""Holds of keys that one script reads and writes at the most: each row of it reads and writes all holds of a key."""

_SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss", "redis+unix": "unix"}
_TRANSIENT = ("OOM", "READONLY", "MISCONF", "NOREPLICAS", "BUSY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "UNBLOCKED")
_log = logging.getLogger("leased.server.registry")


class RedisRegistry:
    """See `Registry`, `HoldsKept` and `Shelf`. Nothing is connected before the first call.

    `mark` tells whether credentials there were hashed with our key; `begin`: whether a server without a registry gets
    one, else it is refused. `timeout`: seconds that a call may take.
    """

    def __init__(self, url: str, *, mark: str, begin: bool = False, timeout: float = 2.0) -> None:
        self.shown = hide_secrets(url)
        self._mark = mark
        self._begin = begin
        self._timeout = timeout
        self._redis = driver("redis.asyncio", extra="redis")
        self._errors = driver("redis.exceptions", extra="redis")
        self._client: Any = self._client_of(url)
        self._scripts = {name: self._client.register_script(text) for name, text in scripts.ALL.items()}
        self._silence = Silence()
        self._checked = False
        self._closed = False

    async def credential(self, id: str) -> Credential | None:
        """See `Registry`."""

        async def read() -> Credential | None:
            return (await self._credentials([id]))[0]

        return await self._run(read)

    async def credentials(self, project: str, *, after: str = "", limit: int = MAX_PAGE) -> Sequence[Credential]:
        """See `Registry`."""

        async def read() -> Sequence[Credential]:
            first = f"({after}" if after else "-"
            named = _name("ids", project)
            ids = await self._client.zrangebylex(named, first, "+", start=0, num=min(limit, MAX_PAGE))
            found = await self._credentials([id_.decode() for id_ in ids])
            return [one for one in found if one is not None]

        return await self._run(read)

    async def add_credential(self, credential: Credential, line: AuditLine) -> None:
        """See `Registry`."""
        given = (credential.id, write_credential(credential))
        if not await self._change("add", line, given, keys=[_name("ids", credential.project)]):
            raise StoreNotUsable(f"the registry {self.shown} has the credential {credential.id} already")

    async def revoke(self, credential: Credential, line: AuditLine) -> bool:
        """See `Registry`."""
        given = (credential.id, repr(line.at))
        return await self._change("revoke", line, given, keys=[_name("ids", credential.project)])

    async def rule_set(self, project: str) -> RuleSet | None:
        """See `Registry`."""

        async def read() -> RuleSet | None:
            mark, name, text = await self._client.hmget(NAME, "mark", f"rules:{project}", f"sources:{project}")
            self._check_mark(mark)
            return None if name is None or text is None else read_rules(text, project=project, name=name.decode())

        return await self._run(read)

    async def put_rule_set(self, rule_set: RuleSet, line: AuditLine) -> bool:
        """See `Registry`."""
        return await self._change("put", line, (rule_set.project, rule_set.name, write_rules(rule_set)))

    async def delete_rule_set(self, project: str, name: str, *, line: AuditLine) -> bool:
        """See `Registry`."""
        return await self._change("delete", line, (project, name))

    async def bind_request(self, project: str, request_id: str, *, digest: bytes, until: float, now: float) -> bytes:
        """See `Registry`."""
        keys = [_name("requests", project), _name("ends", project)]
        id_ = hashlib.sha256(request_id.encode(errors="surrogatepass")).digest()
        given = [id_, digest, repr(until), repr(now), MAX_REQUESTS, max(1, round((until - now) * 1000))]
        return bytes(await self._run(lambda: self._scripts["bind"](keys=keys, args=given)))

    async def write_audit(self, lines: Sequence[AuditLine]) -> None:
        """See `Registry`."""

        async def write() -> None:
            for line in lines:
                keys = [NAME, _name("audit", line.project)]
                await self._scripts["line"](keys=keys, args=[write_line(line), MAX_LINES])

        await self._run(write)

    async def audit(self, project: str, *, before: int | None = None, limit: int = MAX_PAGE) -> Sequence[AuditLine]:
        """See `Registry`."""
        if before is not None and before <= 1:
            return []

        async def read() -> Sequence[AuditLine]:
            last = "+" if before is None else str(before - 1)
            found = await self._client.xrevrange(_name("audit", project), last, "-", count=min(limit, MAX_PAGE))
            return [
                read_line(fields[b"line"], project=project, number=int(number.partition(b"-")[0]))
                for number, fields in found
            ]

        return await self._run(read)

    async def write_holds(self, begun: Sequence[PastHold], ended: Sequence[HoldEnd], *, room: Room) -> None:
        """See `HoldsKept`: in several steps, so that none keeps others waiting."""
        names = [f"{NAME}:holds{part}" for part in ("", ":order", ":counts")]
        rows = [_begin_row(one) for one in begun] + [_end_row(one) for one in ended]
        step = max(1, min(_HOLDS_AT_ONCE, _PARTS_AT_ONCE // room.each))

        async def write() -> None:
            for at in range(0, len(rows), step):
                some = rows[at : at + step]
                given = [room.each, room.total, max(0, len(begun) - at), *(part for row in some for part in row)]
                await self._scripts["holds"](keys=names, args=given)

        await self._run(write)

    async def holds(self, project: str, key: str, *, limit: int) -> Sequence[PastHold]:
        """See `HoldsKept`."""

        async def read() -> Sequence[PastHold]:
            text = await self._client.hget(f"{NAME}:holds", f"{project}:{key}")
            rows = [] if text is None else json.loads(text)[::-1][:limit]
            return [
                read_hold(
                    (mark, int(number), begin, float(at) if at else None, end or None, reason), project=project, key=key
                )
                for mark, number, begin, at, end, reason in rows
            ]

        return await self._run(read)

    async def take(self, uses: Sequence[Use]) -> Sequence[int]:
        """See `Shelf`."""
        return [int(late) for late in await self._run(lambda: self._use("take", uses))]

    async def spend(self, uses: Sequence[Use]) -> None:
        """See `Shelf`."""
        if uses:
            await self._run(lambda: self._use("spend", uses))

    async def close(self) -> None:
        """See `Registry`."""
        if not self._closed:
            self._closed = True
            await self._client.aclose()

    async def _credentials(self, ids: Sequence[str]) -> Sequence[Credential | None]:
        names = [f"{part}:{id_}" for id_ in ids for part in ("credential", "revoked")]
        mark, *found = await self._client.hmget(NAME, "mark", *names)
        self._check_mark(mark)
        return [
            None if text is None else read_credential(text, revoked_at=None if ended is None else float(ended))
            for text, ended in zip(found[::2], found[1::2], strict=True)
        ]

    async def _change(self, name: str, line: AuditLine, given: Sequence[str], *, keys: Sequence[str] = ()) -> bool:
        """Run a script that changes something and appends the line, or does neither."""
        names = [NAME, _name("audit", line.project), *keys]
        common = [self._mark, "1" if self._begin else "", write_line(line), MAX_LINES]

        async def write() -> bool:
            found = await self._scripts[name](keys=names, args=[*common, *given])
            if isinstance(found, bytes):
                self._check_mark(None if found == b"" else found)
            return bool(found == 1)

        return await self._run(write, applied=None)

    async def _use(self, name: str, uses: Sequence[Use]) -> Any:
        keys = [NAME.encode() + b":budget:" + use.name.encode(errors="surrogatepass") for use in uses]
        return await self._scripts[name](keys=keys, args=[part for use in uses for part in (use.cost, use.span)])

    def _check_mark(self, mark: bytes | None) -> None:
        if mark is None and not self._begin:
            raise StoreNotUsable(
                f"there is no registry on {self.shown}: it was never made, or the server has lost it",
                hint="restore it from a backup, or make one by 'leased keys create' with the same --registry",
            )
        if mark is not None and mark.decode() != self._mark:
            raise StoreNotUsable(
                f"the registry on {self.shown} was made with another key file",
                hint="give every replica, and 'leased keys', the same --registry-key",
            )

    async def _run(self, work: Callable[[], Awaitable[_T]], *, applied: bool | None = False) -> _T:
        if self._closed:
            raise StoreNotUsable(f"the registry {self.shown} was closed", hint="connect again")
        errors, began = self._errors, self._silence.begin()
        try:
            async with asyncio.timeout(self._timeout):
                if not self._checked:
                    await self._check_server()
                found = await work()
            self._silence.ended()
            return found
        except LeasedError:  # some of them are an OSError, too
            self._silence.ended()
            raise
        except TimeoutError as error:
            message = f"the registry {self.shown} did not answer within {self._timeout:g} s"
            raise self._silence.failed(StoreUnavailable(message, applied=applied), began=began) from error
        except (errors.AuthenticationError, errors.AuthorizationError, errors.NoPermissionError) as error:
            self._silence.ended()
            raise StoreNotUsable(
                f"the registry {self.shown} refuses its user: {shown(str(error))}", hint="look at the URL"
            ) from error
        except (errors.ConnectionError, errors.TimeoutError, OSError) as error:
            message = f"the registry {self.shown} gave no answer"
            raise self._silence.failed(StoreUnavailable(message, applied=applied), began=began) from error
        except errors.RedisError as error:
            self._silence.ended()
            text = shown(str(error))
            if isinstance(error, errors.ReadOnlyError | errors.OutOfMemoryError) or text.startswith(_TRANSIENT):
                raise StoreUnavailable(f"the registry {self.shown} refuses: {text}", applied=False) from error
            raise StoreNotUsable(f"the registry {self.shown} cannot be used: {text}") from error
        finally:
            self._silence.over(began)

    async def _check_server(self) -> None:
        """Refuse a server that could drop rules or ended keys by itself, and warn of one that forgets when it ends."""
        try:
            found = await self._client.config_get("maxmemory-policy", "appendonly", "appendfsync")
        except self._errors.ResponseError:
            found = {}  # a user who may not ask, or a server that does not say
        known = {_text(name): _text(value) for name, value in found.items()}
        if known.get("maxmemory-policy", "").startswith("allkeys"):
            raise StoreNotUsable(
                f"the registry {self.shown} would be evicted when memory runs out",
                hint="set maxmemory-policy to noeviction on that server, or use another one",
            )
        self._checked = True
        if known and (known.get("appendonly"), known.get("appendfsync")) != ("yes", "always"):
            _log.warning(
                "the registry %s can lose its last changes when the server ends, such as a key being revoked: set "
                "appendonly yes and appendfsync always",
                self.shown,
            )

    def _client_of(self, url: str) -> Any:
        scheme, colon, rest = url.partition(":")
        if scheme.lower() not in _SCHEMES:
            raise InvalidRequest(f"{self.shown} names no single Redis server", hint="write redis://HOST:PORT/0")
        retry = driver("redis.asyncio.retry", extra="redis").Retry(
            driver("redis.backoff", extra="redis").NoBackoff(), 0
        )
        try:
            pool = self._redis.BlockingConnectionPool.from_url(
                f"{_SCHEMES[scheme.lower()]}{colon}{rest}",
                max_connections=MAX_CONNECTIONS,
                timeout=self._timeout,
                socket_timeout=self._timeout,
                socket_connect_timeout=self._timeout,
                retry=retry,
            )
        except ValueError:  # whose text may show the URL whole
            raise InvalidRequest(f"the URL {self.shown} cannot be read", hint="write redis://HOST:PORT/0") from None
        return self._redis.Redis.from_pool(pool)


def _name(part: str, project: str) -> str:
    return f"{NAME}:{part}:{project}"


def _begin_row(one: PastHold) -> Sequence[str | int]:
    """Of a hold what the script takes; no project has a colon in its name."""
    ended_at = "" if one.ended_at is None else repr(one.ended_at)
    end = (ended_at, one.end or "", write_reason(one.reason))
    return (f"{one.project}:{one.key}", one.mark, one.fencing_token, write_begin(one), *end)


def _end_row(one: HoldEnd) -> Sequence[str | int]:
    """The same of an end."""
    place = f"{one.project}:{one.key}"
    return (place, one.mark, one.fencing_token, "", repr(one.at), one.end, write_reason(one.reason))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
