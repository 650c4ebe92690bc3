"""The operations of the store contract inside one SQLite transaction, which somebody else begins and ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leased.errors import StoreNotUsable
from leased.model import Claim, Contended, Held, Lease, Lost, LostReason, Released, Status, read_metadata
from leased.stores._sqlite_record import COLUMNS, NUMBERS, REPLAY, SECOND, Record, digest_of, microseconds

_SWEEP_MOST = 256
_ROW = "namespace = ? AND key = ?"
# What goes into these texts are names of columns; values are always bound. An owner is read as bytes, for a record with
# text that is none must still be seen and removed.
_STORE = "SELECT boot_id, boot, fencing_token FROM store"
_FIND = f"SELECT {COLUMNS} FROM record WHERE {_ROW}"  # noqa: S608
_MARKED = "SELECT reason FROM mark WHERE namespace = ? AND token = ? AND boot = ? AND until > ?"
_GRANT = f"""
    INSERT OR REPLACE INTO record (namespace, key, token, owner, held_by, metadata, {NUMBERS}, sweep_at)
    VALUES ({", ".join("?" * 20)})
"""  # noqa: S608
_LATE = f"UPDATE record SET late = 1 WHERE {_ROW}"  # noqa: S608
_RENEW = f"UPDATE record SET wall = ?, renewal = ?, expires_at = ?, free_at = ?, ttl = ? WHERE {_ROW}"  # noqa: S608
_CLOSE = f"""
    UPDATE record SET token = NULL, late = 0, forced = ?, wall = ?, free_at = ?, sweep_at = ? WHERE {_ROW}
"""  # noqa: S608
_MOVE = f"""
    UPDATE record SET boot = ?, wall = ?, acquired_at = ?, expires_at = ?, free_at = ?, deadline = ?, sweep_at = ?
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
        key, token, now = claim.key, digest_of(claim.token), self._now
        record = self._find(key)
        if record is not None:
            held = record.held(now)
            if held and record.has(token):
                if claim.late and not record.late:
                    self._execute(_LATE, (self._namespace, key))
                return self._held(key, claim.token, record)
            if record.has(token) or self._marked(token):
                return Contended(self._status(key, record), ended=True)
            if held and (claim.owner is None or record.owner != claim.owner.encode()):
                return Contended(self._status(key, record))
            if held:
                self._mark(record.token, "retaken")
            elif now < record.free_at:
                return Contended(self._status(key, record))
            elif record.late:
                self._mark(record.token, "expired")
        elif self._marked(token):
            return Contended(Status(key), ended=True)
        return self._grant(claim, token)

    def renew(self, key: str, token: str, *, ttl: float, number: int) -> Held | Lost:
        """See `leased.store`."""
        digest = digest_of(token)
        record = self._find(key)
        if record is None or not record.has(digest) or self._now >= record.expires_at:
            return Lost(self._lost_reason(record, digest))
        if number > record.renewal:
            length = microseconds(ttl)
            expires_at = min(self._now + length, record.deadline)
            free_at = max(expires_at + record.lock_delay, record.acquired_at + record.hold_at_least)
            self._execute(_RENEW, (self._wall, number, expires_at, free_at, length, self._namespace, key))
            record = record._replace(renewal=number, expires_at=expires_at, ttl=length)
        return self._held(key, token, record)

    def look(self, key: str, token: str) -> Held | Lost:
        """See `leased.store`."""
        return self.renew(key, token, ttl=0.0, number=-1)

    def release(self, key: str, token: str, *, late: bool) -> Released:
        """See `leased.store`."""
        digest = digest_of(token)
        record = self._find(key)
        mine = record is not None and record.has(digest)
        if late or (mine and record is not None and record.late):
            self._mark(digest, "released")
        if record is None or not mine:
            return Released("not_holder")
        if self._now >= record.expires_at:
            return Released("expired")
        self._end(key, free_at=record.acquired_at + record.hold_at_least)
        return Released()

    def abandon(self, key: str, token: str) -> None:
        """See `leased.store`."""
        digest = digest_of(token)
        record = self._find(key)
        self._mark(digest, "abandoned")
        if record is not None and record.has(digest) and self._now < record.expires_at:
            self._end(key, free_at=self._now)

    def force_release(self, key: str, fencing_token: int | None) -> bool:
        """See `leased.store`. A record that cannot be read goes, if only the key is named."""
        try:
            record = self._find(key)
        except UnreadableRecord:
            if fencing_token is None:
                self._end(key, free_at=self._now)
            return fencing_token is None
        if record is None or fencing_token not in (None, record.fencing_token):
            return False
        if record.held(self._now):
            self._mark(record.token, "force_released")
            self._end(key, free_at=self._now + record.lock_delay, forced=1)
            return True
        if record.forced or self._now >= record.free_at:
            return False
        if record.late:
            self._mark(record.token, "expired")
        self._end(key, free_at=self._now)
        return True

    def status(self, key: str) -> Status:
        """See `leased.store`. A record that cannot be read is shown as held, by nobody that could be named."""
        try:
            record = self._find(key)
        except UnreadableRecord:
            return Status(key, "held")
        return Status(key) if record is None else self._status(key, record)

    def list(self, prefix: str, *, after: str, limit: int) -> list[Status]:
        """See `leased.store`."""
        page: list[Status] = []
        for row in self._execute(_LIST, (self._namespace, after, prefix, after)):
            key = row[0].decode(errors="replace")
            if len(page) >= limit or not key.startswith(prefix):
                break
            if key <= after:
                continue  # text that is none, shown as another: or no list would ever end
            record = self._readable(row[1:])
            status = Status(key, "held") if record is None else self._status(key, record)
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
            record = self._readable(columns)
            if record is None:
                self._execute(_PUT_OFF, (self._boot, self._now + _A_DAY, *row))
            elif record.over_at() <= self._now:
                self._execute(_DELETE, row)
            else:
                times = (record.acquired_at, record.expires_at, record.free_at, record.deadline, record.over_at())
                self._execute(_MOVE, (self._boot, record.wall, *times, *row))
        self._execute(_SWEEP_MARKS, (most, self._boot, self._now))

    def _find(self, key: str) -> Record | None:
        columns = self._execute(_FIND, (self._namespace, key)).fetchone()
        if columns is None:
            return None
        record = self._readable(columns)
        if record is None:
            raise UnreadableRecord(
                f"the record of key {key!r} in {self._path} cannot be read",
                hint="a forced release of the key, without a fencing token, removes it",
            )
        return record

    def _marked(self, token: bytes) -> str | None:
        """Why this token has ended, as long as that is remembered."""
        mark = self._execute(_MARKED, (self._namespace, token, self._boot, self._now)).fetchone()
        return None if mark is None else str(mark[0])

    def _readable(self, columns: Any) -> Record | None:
        record = Record._make(columns)
        if not record.readable():
            return None
        return record if record.boot == self._boot else record.since_reboot(self._wall)

    def _grant(self, claim: Claim, token: bytes) -> Held:
        now, terms, length = self._now, claim.terms, microseconds(claim.ttl)
        self._last = max(self._last + 1, now + self._wall)
        self._granted = True
        deadline = now + microseconds(terms.max_hold)
        hold_at_least, lock_delay = microseconds(terms.hold_at_least), microseconds(terms.lock_delay)
        expires_at = min(now + length, deadline)
        free_at = max(expires_at + lock_delay, now + hold_at_least)
        owner = None if claim.owner is None else claim.owner.encode()
        held_by = terms.held_by.encode(errors="replace")
        record = Record(
            token, owner, held_by, terms.metadata.encode(), self._boot, self._wall, self._last, 0, now, expires_at,
            free_at, deadline, length, hold_at_least, lock_delay, int(claim.late), 0,
        )  # fmt: skip
        text = (claim.owner, held_by.decode(), terms.metadata)
        self._execute(_GRANT, (self._namespace, claim.key, token, *text, *record[4:], record.over_at()))
        return self._held(claim.key, claim.token, record)

    def _end(self, key: str, *, free_at: int, forced: int = 0) -> None:
        """End the lease; the key stays closed until `free_at`, and without such a time its record goes at once."""
        if free_at > self._now:
            self._execute(_CLOSE, (forced, self._wall, free_at, free_at, self._namespace, key))
        else:
            self._execute(_DELETE, (self._namespace, key))
        self.freed.append(key)

    def _mark(self, token: bytes | None, reason: str) -> None:
        """Remember for the replay window, from now, that a token has ended. The first reason stands."""
        if token is not None:
            reason = self._marked(token) or reason
            self._execute(_MARK, (self._namespace, token, reason, self._boot, self._now + REPLAY))

    def _lost_reason(self, record: Record | None, token: bytes) -> LostReason:
        if record is not None and record.has(token):
            return "max_hold" if self._now >= record.deadline else "expired"
        mark = self._marked(token)
        if mark in ("retaken", "force_released"):
            return "retaken" if mark == "retaken" else "force_released"
        return "taken" if record is not None and record.held(self._now) else "expired"

    def _held(self, key: str, token: str, record: Record) -> Held:
        owner = None if record.owner is None else record.owner.decode(errors="replace")
        left = (record.expires_at - self._now) / SECOND
        ttl = record.ttl / SECOND
        return Held(Lease(key, token, record.fencing_token, ttl, owner, left, 0.0, record.renewal))

    def _status(self, key: str, record: Record) -> Status:
        now = self._now
        held = record.held(now)
        if not held and now >= record.free_at:
            return Status(key)

        def shown(at: int) -> tuple[float, float]:
            return (at - now) / SECOND, (at + self._wall) / SECOND

        free_in, free_at = shown(record.free_at)
        if not held:
            return Status(key, "closed", free_in=free_in, free_at=free_at, fencing_token=record.fencing_token)
        expires_in, expires_at = shown(record.expires_at)
        return Status(
            key=key,
            state="held",
            owner=None if record.owner is None else record.owner.decode(errors="replace"),
            held_by=record.held_by.decode(errors="replace"),
            expires_in=expires_in,
            expires_at=expires_at,
            free_in=free_in,
            free_at=free_at,
            fencing_token=record.fencing_token,
            acquired_at=shown(record.acquired_at)[1],
            metadata=read_metadata(record.metadata.decode(errors="replace")),
        )
