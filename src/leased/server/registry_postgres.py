"""The registry in a PostgreSQL database, for any number of replicas. It decides nothing; a change is a transaction."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any, TypeVar

from leased.checks import shown
from leased.errors import StoreNotUsable, StoreUnavailable
from leased.server import registry_postgres_holds as holds
from leased.server import registry_postgres_statements as sql
from leased.server.credentials import Credential, RuleSet
from leased.server.holds import HoldEnd, PastHold, Room, Surplus
from leased.server.registry import MAX_PAGE, AuditLine
from leased.server.registry_postgres_pool import Pool
from leased.server.registry_texts import (
    read_credential,
    read_line,
    read_rules,
    write_credential,
    write_line,
    write_rules,
)
from leased.server.usage import Use
from leased.stores._drivers import driver
from leased.targets import hide_secrets

_T = TypeVar("_T")

MAX_REQUESTS = 100_000
"""Request ids remembered for one project; those that would be forgotten first make room."""

SWEPT_EVERY = 10.0
"""Seconds after which rows of budgets that are full are removed."""

_FORGOTTEN_AT_ONCE = 20
_SWEPT_AT_ONCE = 10_000
_COUNTED_EVERY = 100
_LAST = 2**63 - 1


class PostgresRegistry:
    """See `Registry`, `HoldsKept` and `Shelf`. Nothing is connected before the first call.

    `mark` tells whether credentials there were hashed with our key; `begin`: whether a database without a registry gets
    one, else it is refused. `timeout`: seconds that a call may take.
    """

    def __init__(self, url: str, *, mark: str, begin: bool = False, timeout: float = 2.0) -> None:
        self.shown = hide_secrets(url)
        self._mark = mark
        self._begin = begin
        self._pool = Pool(url, timeout=timeout)
        self._begun = False
        self._surplus = Surplus()
        self._bound = 0
        self._swept_at = monotonic()

    async def credential(self, id: str) -> Credential | None:
        """See `Registry`."""

        async def read(connection: Any) -> Credential | None:
            row = await _row(connection, sql.CREDENTIAL, (id,))
            return None if row is None else read_credential(row[0], revoked_at=row[1])

        return await self._run(read)

    async def credentials(self, project: str, *, after: str = "", limit: int = MAX_PAGE) -> Sequence[Credential]:
        """See `Registry`."""

        async def read(connection: Any) -> Sequence[Credential]:
            cursor = await connection.execute(sql.CREDENTIALS, (project, after, min(limit, MAX_PAGE)))
            return [read_credential(record, revoked_at=ended) for record, ended in await cursor.fetchall()]

        return await self._run(read)

    async def add_credential(self, credential: Credential, line: AuditLine) -> None:
        """See `Registry`."""
        row = (credential.id, credential.project, write_credential(credential))
        if not await self._change(sql.ADD, row, line=line):
            raise StoreNotUsable(f"the registry {self.shown} has the credential {credential.id} already")

    async def revoke(self, credential: Credential, line: AuditLine) -> bool:
        """See `Registry`."""
        return await self._change(sql.REVOKE, (line.at, credential.id, credential.project), line=line)

    async def rule_set(self, project: str) -> RuleSet | None:
        """See `Registry`."""

        async def read(connection: Any) -> RuleSet | None:
            row = await _row(connection, sql.RULE_SET, (project,))
            return None if row is None else read_rules(row[1], project=project, name=row[0])

        return await self._run(read)

    async def put_rule_set(self, rule_set: RuleSet, line: AuditLine) -> bool:
        """See `Registry`."""
        return await self._change(sql.PUT, (rule_set.project, rule_set.name, write_rules(rule_set)), line=line)

    async def delete_rule_set(self, project: str, name: str, *, line: AuditLine) -> bool:
        """See `Registry`."""
        return await self._change(sql.DELETE, (project, name), line=line)

    async def bind_request(self, project: str, request_id: str, *, digest: bytes, until: float, now: float) -> bytes:
        """See `Registry`."""
        id_ = hashlib.sha256(request_id.encode(errors="surrogatepass")).digest()
        given = {"project": project, "id": id_, "digest": digest, "until": until, "now": now}
        self._bound += 1

        async def write(connection: Any) -> bytes:
            await connection.execute(sql.FORGET_ENDED, {**given, "most": _FORGOTTEN_AT_ONCE})
            if self._bound % _COUNTED_EVERY == 1:
                await connection.execute(sql.FORGET_SURPLUS, {**given, "most": MAX_REQUESTS - 1})
            row = await _row(connection, sql.BIND, given) or await _row(connection, sql.BOUND, (project, id_))
            if row is None:
                raise StoreUnavailable(f"the registry {self.shown} forgot a request id just now", applied=False)
            return bytes(row[0])

        return await self._run(write)

    async def write_audit(self, lines: Sequence[AuditLine]) -> None:
        """See `Registry`."""

        async def write(connection: Any) -> None:
            async with connection.transaction():
                for line in lines:
                    await connection.execute(sql.LINE, (line.project, write_line(line)))

        await self._run(write)

    async def audit(self, project: str, *, before: int | None = None, limit: int = MAX_PAGE) -> Sequence[AuditLine]:
        """See `Registry`."""

        async def read(connection: Any) -> Sequence[AuditLine]:
            top = _LAST if before is None else before
            cursor = await connection.execute(sql.LINES, (project, top, min(limit, MAX_PAGE)))
            return [read_line(text, project=project, number=number) for number, text in await cursor.fetchall()]

        return await self._run(read)

    async def take(self, uses: Sequence[Use]) -> Sequence[int]:
        """See `Shelf`. The first, which most callers share, is used last: its row is closed for the shortest time."""

        async def write(connection: Any) -> Sequence[int]:
            await self._sweep(connection)
            if len(uses) == 1:
                return [0 if await _takes(connection, uses[0]) else await _late(connection, uses[0])]
            refused: Use | None = None
            async with connection.transaction() as transaction:
                for use in reversed(uses):
                    if not await _takes(connection, use):
                        refused = use
                        raise driver("psycopg", extra="postgres").Rollback(transaction)
            return [await _late(connection, use) if use is refused else 0 for use in uses]

        return await self._run(write)

    async def spend(self, uses: Sequence[Use]) -> None:
        """See `Shelf`."""

        async def write(connection: Any) -> None:
            for use in uses:
                await connection.execute(sql.SPEND, _given(use))

        await self._run(write)

    async def write_holds(self, begun: Sequence[PastHold], ended: Sequence[HoldEnd], *, room: Room) -> None:
        """See `HoldsKept`."""

        async def write(connection: Any) -> None:
            async with connection.transaction():
                await holds.keep(connection, begun, ended=ended, room=room, surplus=self._surplus)

        await self._run(write)

    async def holds(self, project: str, key: str, *, limit: int) -> Sequence[PastHold]:
        """See `HoldsKept`."""
        return await self._run(lambda connection: holds.last(connection, project, key=key, limit=limit))

    async def close(self) -> None:
        """See `Registry`."""
        await self._pool.close()

    async def _change(self, statement: str, row: Sequence[Any], *, line: AuditLine) -> bool:
        """Run a statement and append the line if it has changed something, as one step."""

        async def write(connection: Any) -> bool:
            async with connection.transaction():
                found = (await connection.execute(statement, row)).rowcount == 1
                if found:
                    await connection.execute(sql.LINE, (line.project, write_line(line)))
                return bool(found)

        return await self._run(write, applied=None)

    async def _run(self, work: Callable[[Any], Awaitable[_T]], *, applied: bool | None = False) -> _T:
        async def checked(connection: Any) -> _T:
            if not self._begun:
                await self._check_mark(connection)
                self._begun = True
            return await work(connection)

        return await self._pool.run(checked, applied=applied)

    async def _check_mark(self, connection: Any) -> None:
        """Make the tables where that is wanted, and see that keys are hashed here as we do it."""
        if (await _row(connection, "SELECT to_regclass('leased_registry_mark')", ()) or (None,))[0] is None:
            if not self._begin:
                raise StoreNotUsable(
                    f"there is no registry in {self.shown}",
                    hint="make one by 'leased keys create' with the same --registry and --registry-key",
                )
            async with connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock(%s)", (sql.MAKING,))
                await connection.execute(sql.SCHEMA)
        if self._begin:
            first = "INSERT INTO leased_registry_mark (mark, version) VALUES (%s, %s) ON CONFLICT DO NOTHING"
            await connection.execute(first, (self._mark, sql.SCHEMA_VERSION))
        mark, version = await _row(connection, "SELECT mark, version FROM leased_registry_mark", ()) or ("", 0)
        if version not in {0, sql.SCHEMA_VERSION}:
            message = f"{self.shown} has a registry of another release (version {shown(version)})"
            raise StoreNotUsable(message, hint="use that release")
        if mark != self._mark:
            raise StoreNotUsable(
                f"the registry in {self.shown} was made with another key file",
                hint="give every replica, and 'leased keys', the same --registry-key",
            )

    async def _sweep(self, connection: Any) -> None:
        """Remove budgets that are full: rows are as many as were used in the last seconds."""
        if monotonic() - self._swept_at >= SWEPT_EVERY:
            self._swept_at = monotonic()
            await connection.execute(sql.SWEEP, (_SWEPT_AT_ONCE,))


async def _row(connection: Any, statement: str, given: Any) -> Any:
    return await (await connection.execute(statement, given)).fetchone()


async def _takes(connection: Any, use: Use) -> bool:
    return bool((await connection.execute(sql.TAKE, _given(use))).rowcount == 1)


async def _late(connection: Any, use: Use) -> int:
    """By how much a use came too early: by something, for it was refused."""
    row = await _row(connection, sql.LATE, _given(use))
    late = use.cost if row is None else int(row[0])
    if late > use.cost:
        await connection.execute(sql.HEAL, _given(use))
    return max(1, min(late, use.cost))


def _given(use: Use) -> dict[str, Any]:
    return {"name": use.name.encode(errors="surrogatepass"), "cost": use.cost, "span": use.span}
