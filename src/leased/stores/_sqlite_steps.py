"""The operations of the store contract inside one SQLite transaction, which somebody else begins and ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from leased.errors import StoreNotUsable
from leased.model import Claim, Contended, Held, Lost, Released, Status
from leased.stores import _sql_rules as rules
from leased.stores._sql_record import NEVER_GRANTED, REPLAY, SECOND, Record
from leased.stores._sqlite_record import COLUMNS, NUMBERS, over_at, record_in

_SWEEP_MOST = 256
_ROW = "namespace = ? AND key = ?"
# What goes into these texts are names of columns; values are always bound. An owner is read as bytes, for a record with
# text that is none must still be seen and removed.
_STORE = "SELECT boot_id, boot, fencing_token FROM store"
_FIND = f"SELECT {COLUMNS} FROM record WHERE {_ROW}"  # noqa: S608
_MARKED = "SELECT reason FROM mark WHERE namespace = ? AND token = ? AND boot = ? AND until > ?"
_GRANT = f"""
    INSERT OR REPLACE INTO record (namespace, key, token, owner, held_by, metadata, {NUMBERS}, boot, wall, sweep_at)
    VALUES ({", ".join("?" * 20)})
"""  # noqa: S608
_TOLD = f"UPDATE record SET late = ?, renewal = ? WHERE {_ROW}"  # noqa: S608
_RENEW = f"UPDATE record SET wall = ?, renewal = ?, expires_at = ?, free_at = ?, ttl = ? WHERE {_ROW}"  # noqa: S608
_CLOSE = f"""
    UPDATE record SET token = NULL, late = 0, forced = ?, wall = ?, free_at = ?, sweep_at = ? WHERE {_ROW}
"""  # noqa: S608
_MOVE = f"""
    UPDATE record SET wall = CASE boot WHEN ? THEN wall ELSE ? END, boot = ?,
        acquired_at = ?, expires_at = ?, free_at = ?, deadline = ?, sweep_at = ?
    WHERE {_ROW}
"""  # noqa: S608
_PUT_OFF = f"UPDATE record SET boot = ?, sweep_at = ? WHERE {_ROW}"  # noqa: S608
_DELETE = f"DELETE FROM record WHERE {_ROW}"  # noqa: S608
_LIST = f"""
    SELECT CAST(key AS BLOB), {COLUMNS} FROM record
    WHERE namespace = ? AND key >= max(?, ?) AND key > ? ORDER BY key
"""  # noqa: S608
_DUE = f"""
    SELECT CAST(namespace AS BLOB), CAST(key AS BLOB), {COLUMNS} FROM record
    WHERE (boot, sweep_at) <= (?, ?) ORDER BY boot, sweep_at LIMIT ?
"""  # noqa: S608
_MARK = "INSERT OR REPLACE INTO mark (namespace, token, reason, boot, until) VALUES (?, ?, ?, ?, ?)"
_SWEEP_MARKS = "DELETE FROM mark WHERE id IN (SELECT id FROM mark ORDER BY id LIMIT ?) AND (boot < ? OR until <= ?)"
_A_DAY = 86_400 * SECOND


class UnreadableRecord(StoreNotUsable):
    """A row holds what cannot be a record; only a forced release by key does something with it."""


class Steps:
    """One transaction. `freed` collects the keys whose waiters shall be told, once it has been committed."""

    __slots__ = ("_boot", "_execute", "_granted", "_last", "_namespace", "_now", "_path", "_wall", "freed")

    def __init__(self, execute: Callable[..., Any], *, path: str, namespace: str, boot_id: str, now: int, wall: int):
        self._execute = execute
        self._path = path
        self._namespace = namespace
        self._now = now
        self._wall = wall - now
        running, self._boot, self._last = self._execute(_STORE).fetchone()
        if running != boot_id:
            raise StoreNotUsable(
                f"{self._path} is used under two boots at once: {running} and, here, {boot_id}",
                hint="let all its users run on one host, and in containers that show the boot id of that host",
            )
        self._granted = False
        self.freed: list[str] = []

    def acquire(self, claim: Claim) -> Held | Contended:
        """See `leased.store`."""
        seen = self._see(claim.key)
        answer, effect = rules.acquire(seen, claim=claim)
        if effect is not None:
            record = effect.record
            if seen.record is not None and record.fencing_token == seen.record.fencing_token:
                self._execute(_TOLD, (int(record.late), record.renewal, self._namespace, claim.key))
            else:
                self._mark_all(effect)
                self._grant(claim, record)
        return answer

    def renew(self, key: str, token: str, *, ttl: float, number: int) -> Held | Lost:
        """See `leased.store`."""
        answer, effect = rules.renew(self._see(key), key=key, token=token, ttl=ttl, number=number)
        if effect is not None:
            record = effect.record
            times = (record.expires_at, record.free_at, record.ttl)
            self._execute(_RENEW, (self._wall, number, *times, self._namespace, key))
        return answer

    def look(self, key: str, token: str) -> Held | Lost:
        """See `leased.store`."""
        return rules.look(self._see(key), key=key, token=token)

    def release(self, key: str, token: str, *, late: bool) -> Released:
        """See `leased.store`."""
        answer, effect = rules.release(self._see(key), token=token, late=late)
        if effect is not None:
            self._end(key, effect)
        return answer

    def abandon(self, key: str, token: str, *, heard: int | None) -> None:
        """See `leased.store`."""
        effect = rules.abandon(self._see(key), token=token, heard=heard)
        if effect is not None:
            self._end(key, effect)

    def force_release(self, key: str, fencing_token: int | None) -> bool:
        """See `leased.store`. A record that cannot be read goes, if only the key is named."""
        try:
            seen = self._see(key)
        except UnreadableRecord:
            if fencing_token is None:
                self._end(key, rules.Effect(NEVER_GRANTED, freed=True))
            return fencing_token is None
        answer, effect = rules.force_release(seen, fencing_token=fencing_token)
        if effect is not None:
            self._end(key, effect)
        return answer

    def status(self, key: str) -> Status:
        """See `leased.store`. A record that cannot be read is shown as held, by nobody that could be named."""
        try:
            return rules.status(self._see(key), key=key)
        except UnreadableRecord:
            return Status(key, "held")

    def list(self, prefix: str, *, after: str, limit: int) -> list[Status]:
        """See `leased.store`."""
        page: list[Status] = []
        for row in self._execute(_LIST, (self._namespace, after, prefix, after)):
            key = row[0].decode(errors="replace")
            if len(page) >= limit or not key.startswith(prefix):
                break
            if key <= after:
                continue  # text that is none, shown as another: or no list would ever end
            record = self._read(row[1:])
            status = Status(key, "held") if record is None else record.status(key, now=self._now, zero=self._wall)
            if status.held:
                page.append(status)
        return page

    def finish(self) -> None:
        """Write what all steps together have to leave behind; the last thing before the commit."""
        if self._granted:
            self._execute("UPDATE store SET fencing_token = ?", (self._last,))

    def sweep(self, steps: int) -> None:
        """Delete what has been over for long enough: a bounded number of rows, more than so many steps can add."""
        most = min(2 * steps, _SWEEP_MOST)
        for namespace, key, *columns in list(self._execute(_DUE, (self._boot, self._now, most))):
            row = namespace.decode(errors="replace"), key.decode(errors="replace")
            record = self._read(columns)
            if record is None:
                self._execute(_PUT_OFF, (self._boot, self._now + _A_DAY, *row))
            elif over_at(record) <= self._now:
                self._execute(_DELETE, row)
            else:
                times = (record.acquired_at, record.expires_at, record.free_at, record.deadline, over_at(record))
                self._execute(_MOVE, (self._boot, self._wall, self._boot, *times, *row))
        self._execute(_SWEEP_MARKS, (most, self._boot, self._now))

    def _read(self, columns: Any) -> Record | None:
        return record_in(columns, boot=self._boot, wall=self._wall)

    def _see(self, key: str) -> _Seen:
        record = None
        columns = self._execute(_FIND, (self._namespace, key)).fetchone()
        if columns is not None:
            record = self._read(columns)
            if record is None:
                raise UnreadableRecord(
                    f"the record of key {key!r} in {self._path} cannot be read",
                    hint="a forced release of the key, without a fencing token, removes it",
                )
        return _Seen(record, self._now, self._wall, self._last, self._marked)

    def _marked(self, token: bytes) -> str | None:
        """Why this token has ended, as long as that is remembered."""
        mark = self._execute(_MARKED, (self._namespace, token, self._boot, self._now)).fetchone()
        return None if mark is None else str(mark[0])

    def _grant(self, claim: Claim, record: Record) -> None:
        self._last = record.fencing_token
        self._granted = True
        row = (self._namespace, claim.key, record.token, claim.owner, record.held_by.decode(), claim.terms.metadata)
        # int() of what is true or false: the driver would look for an adapter of each.
        flags = (int(record.late), int(record.forced))
        self._execute(_GRANT, (*row, *record[4:13], *flags, self._boot, self._wall, over_at(record)))

    def _end(self, key: str, effect: rules.Effect) -> None:
        """Write how a lease ended: a record goes at once when the key is open, for its fencing token is not needed."""
        self._mark_all(effect)
        if not effect.freed:
            return
        record = effect.record
        if record.free_at > self._now:
            closed = (int(record.forced), self._wall, record.free_at, record.free_at)
            self._execute(_CLOSE, (*closed, self._namespace, key))
        else:
            self._execute(_DELETE, (self._namespace, key))
        self.freed.append(key)

    def _mark_all(self, effect: rules.Effect) -> None:
        """Remember for the replay window, from now, that tokens have ended. The first reason stands."""
        for token, reason in effect.marks:
            first = self._marked(token) or reason
            self._execute(_MARK, (self._namespace, token, first, self._boot, self._now + REPLAY))


@dataclass(slots=True)
class _Seen:
    """What the steps see of one key; a mark is looked for when a decision needs it, for most need none."""

    record: Record | None
    now: int
    zero: int
    last: int
    ended: Callable[[bytes], str | None]
