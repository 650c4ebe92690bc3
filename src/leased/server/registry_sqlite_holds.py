"""The history of holds in the registry's SQLite file: what is written and read there, on a connection of others."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from leased.server.holds import HoldEnd, PastHold, Room, Surplus
from leased.server.registry_texts import read_hold, write_begin, write_reason

_TABLE = """
CREATE TABLE IF NOT EXISTS holds (
    number INTEGER PRIMARY KEY AUTOINCREMENT, project TEXT NOT NULL, key TEXT NOT NULL, mark TEXT NOT NULL,
    fencing_token INTEGER NOT NULL, begin TEXT NOT NULL, ended_at REAL, ended TEXT, reason TEXT NOT NULL,
    UNIQUE (project, key, mark)
)
"""
_BEGIN = (
    "INSERT OR IGNORE INTO holds (project, key, mark, fencing_token, begin, ended_at, ended, reason) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_END = (
    "UPDATE holds SET ended_at = :at, ended = :end, reason = :reason WHERE project = :project AND key = :key "
    "AND (mark = :mark OR (:mark = '' AND fencing_token = :number)) "
    "AND (ended IS NULL OR (ended = 'expired' AND (:end <> 'expired' OR ended_at < :at)))"
)
_FORGET = (
    "DELETE FROM holds WHERE project = :project AND key = :key AND number <= "
    "(SELECT number FROM holds WHERE project = :project AND key = :key ORDER BY number DESC LIMIT 1 OFFSET :each)"
)
_FORGET_OLDEST = "DELETE FROM holds WHERE number <= (SELECT number FROM holds ORDER BY number DESC LIMIT 1 OFFSET ?)"
_LAST = (
    "SELECT mark, fencing_token, begin, ended_at, ended, reason FROM holds WHERE project = ? AND key = ? "
    "ORDER BY number DESC LIMIT ?"
)
_KNOWN = "SELECT 1 FROM sqlite_master WHERE name = 'holds'"  # registries of before this history have no such table


def keep(
    connection: sqlite3.Connection, begun: Sequence[PastHold], *, ended: Sequence[HoldEnd], room: Room, surplus: Surplus
) -> None:
    """See `HoldsKept.write_holds`."""
    connection.execute(_TABLE)
    connection.executemany(
        _BEGIN,
        [
            (
                *(one.project, one.key, one.mark, one.fencing_token, write_begin(one)),
                *(one.ended_at, one.end, write_reason(one.reason)),
            )
            for one in begun
        ],
    )
    connection.executemany(
        _END,
        [
            {
                "project": one.project,
                "key": one.key,
                "mark": one.mark,
                "number": one.fencing_token,
                "at": one.at,
                "end": one.end,
                "reason": write_reason(one.reason),
            }
            for one in ended
        ],
    )
    places = {(one.project, one.key) for one in begun}
    connection.executemany(_FORGET, [{"project": project, "key": key, "each": room.each} for project, key in places])
    if surplus.due(len(begun), room=room):
        connection.execute(_FORGET_OLDEST, (room.total,))
        surplus.gone()


def last(connection: sqlite3.Connection, project: str, *, key: str, limit: int) -> Sequence[PastHold]:
    """See `HoldsKept.holds`."""
    if connection.execute(_KNOWN).fetchone() is None:
        return []
    return [read_hold(row, project=project, key=key) for row in connection.execute(_LAST, (project, key, limit))]
