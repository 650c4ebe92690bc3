"""The history of holds in the registry's database: what is said there, on a connection of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leased.server.holds import HoldEnd, PastHold, Room, Surplus
from leased.server.registry_texts import read_hold, write_begin, write_reason

TABLE = """\
CREATE TABLE IF NOT EXISTS leased_registry_hold (
    number bigserial PRIMARY KEY, project text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL,
    mark text COLLATE "C" NOT NULL, fencing_token bigint NOT NULL, begin text NOT NULL,
    ended_at double precision, ended text, reason text NOT NULL, UNIQUE (project, key, mark)
);
"""
_WRITING = 0x1EA5EF
_KNOWN = "SELECT to_regclass('leased_registry_hold') IS NOT NULL"
# Two that write would wait for rows of each other. One that was stopped in its transaction is not waited for: history
# is lost rather than the registry being held up.
_ONE_WRITES = "SELECT set_config('lock_timeout', '1s', true), pg_advisory_xact_lock(%s)"
_BEGIN = """
    INSERT INTO leased_registry_hold (project, key, mark, fencing_token, begin, ended_at, ended, reason)
    SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::bigint[], %s::text[], %s::double precision[],
                         %s::text[], %s::text[])
    ON CONFLICT DO NOTHING
"""
_END = """
    UPDATE leased_registry_hold AS kept SET ended_at = given.at, ended = given.ended, reason = given.reason
    FROM unnest(%s::text[], %s::text[], %s::text[], %s::bigint[], %s::double precision[], %s::text[], %s::text[])
        AS given (project, key, mark, number, at, ended, reason)
    WHERE kept.project = given.project AND kept.key = given.key
        AND (kept.mark = given.mark OR (given.mark = '' AND kept.fencing_token = given.number))
        AND (kept.ended IS NULL
             OR (kept.ended = 'expired' AND (given.ended <> 'expired' OR kept.ended_at < given.at)))
"""
_FORGET = """
    DELETE FROM leased_registry_hold AS kept USING unnest(%s::text[], %s::text[]) AS given (project, key)
    WHERE kept.project = given.project AND kept.key = given.key AND kept.number <= (
        SELECT number FROM leased_registry_hold AS newer
        WHERE newer.project = given.project AND newer.key = given.key ORDER BY number DESC OFFSET %s LIMIT 1
    )
"""
_FORGET_OLDEST = """
    DELETE FROM leased_registry_hold
    WHERE number <= (SELECT number FROM leased_registry_hold ORDER BY number DESC OFFSET %s LIMIT 1)
"""
_LAST = """
    SELECT mark, fencing_token, begin, ended_at, ended, reason FROM leased_registry_hold
    WHERE project = %s AND key = %s ORDER BY number DESC LIMIT %s
"""


async def keep(
    connection: Any, begun: Sequence[PastHold], *, ended: Sequence[HoldEnd], room: Room, surplus: Surplus
) -> None:
    """See `HoldsKept.write_holds`, in a transaction of others."""
    await connection.execute(_ONE_WRITES, (_WRITING,))
    if not (await (await connection.execute(_KNOWN)).fetchone())[0]:
        await connection.execute(TABLE)
    if begun:
        rows = [
            (
                *(one.project, one.key, one.mark, one.fencing_token, write_begin(one)),
                *(one.ended_at, one.end, write_reason(one.reason)),
            )
            for one in begun
        ]
        await connection.execute(_BEGIN, [list(column) for column in zip(*rows, strict=True)])
    if ended:
        ends = [
            (one.project, one.key, one.mark, one.fencing_token, one.at, one.end, write_reason(one.reason))
            for one in ended
        ]
        await connection.execute(_END, [list(column) for column in zip(*ends, strict=True)])
    if begun:
        places = sorted({(one.project, one.key) for one in begun})
        projects, keys = [project for project, _ in places], [key for _, key in places]
        await connection.execute(_FORGET, (projects, keys, room.each))
        if surplus.due(len(begun), room=room):
            await connection.execute(_FORGET_OLDEST, (room.total,))
            surplus.gone()


async def last(connection: Any, project: str, *, key: str, limit: int) -> Sequence[PastHold]:
    """See `HoldsKept.holds`."""
    if not (await (await connection.execute(_KNOWN)).fetchone())[0]:
        return []
    cursor = await connection.execute(_LAST, (project, key, limit))
    return [read_hold(row, project=project, key=key) for row in await cursor.fetchall()]
