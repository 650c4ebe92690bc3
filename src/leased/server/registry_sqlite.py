"""The registry in an SQLite file, for one service process and the command line beside it. It decides nothing."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import stat
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from threading import Lock
from typing import Any, TypeVar

from leased.errors import StoreNotUsable
from leased.server import registry_sqlite_holds as holds
from leased.server.credentials import Credential, RuleSet
from leased.server.holds import HoldEnd, PastHold, Room, Surplus
from leased.server.registry import MAX_PAGE, AuditLine
from leased.server.registry_sqlite_lane import Lane, failure

_T = TypeVar("_T")

APPLICATION_ID = 0x6C656172
"""By which the file is known as a registry: "lear"."""

SCHEMA_VERSION = 1

MAX_REQUESTS = 100_000
"""Request ids remembered for one project; the one that would be forgotten first makes room."""

_SWEPT_AT_ONCE = 20
_SCHEMA = """
CREATE TABLE credentials (
    id TEXT PRIMARY KEY, project TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, digest BLOB NOT NULL,
    role TEXT NOT NULL, groups TEXT NOT NULL, scopes TEXT NOT NULL,
    created_at REAL NOT NULL, created_by TEXT NOT NULL, expires_at REAL, revoked_at REAL
);
CREATE INDEX credentials_of_project ON credentials (project, id);
CREATE TABLE rule_sets (
    project TEXT PRIMARY KEY, name TEXT NOT NULL, acquire TEXT, renew TEXT,
    installed_at REAL NOT NULL, installed_by TEXT NOT NULL
);
CREATE TABLE requests (
    project TEXT NOT NULL, id TEXT NOT NULL, digest BLOB NOT NULL, until REAL NOT NULL, PRIMARY KEY (project, id)
);
CREATE INDEX requests_by_end ON requests (project, until);
CREATE TABLE audit (
    number INTEGER PRIMARY KEY AUTOINCREMENT, project TEXT NOT NULL, at REAL NOT NULL, actor TEXT NOT NULL,
    action TEXT NOT NULL, target TEXT NOT NULL, detail TEXT NOT NULL, count INTEGER NOT NULL
);
CREATE INDEX audit_of_project ON audit (project, number);
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log only grows'); END;
CREATE TRIGGER audit_is_not_cut BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log only grows'); END;
"""


class SqliteRegistry:
    """See `Registry` and `HoldsKept`.

    Reads and writes each have a thread: the loop never waits for a disk, nor a read for a writer. The file is made,
    for this user alone, when it is first used. `timeout`: seconds that a call may take in all.
    """

    def __init__(self, path: str, *, timeout: float = 5.0) -> None:
        self.path = path
        file = _File(path)
        self._reads = Lane(path, connect=file.connect, check=file.check, timeout=timeout, writes=False)
        self._writes = Lane(path, connect=file.connect, check=file.check, timeout=timeout, writes=True)
        self._surplus = Surplus()
        self._closed = False

    async def credential(self, id: str) -> Credential | None:
        """See `Registry`."""

        def read(connection: sqlite3.Connection) -> Credential | None:
            row = connection.execute("SELECT * FROM credentials WHERE id = ?", (id,)).fetchone()
            return None if row is None else _credential(row)

        return await self._read(read)

    async def credentials(self, project: str, *, after: str = "", limit: int = MAX_PAGE) -> Sequence[Credential]:
        """See `Registry`."""
        sql = "SELECT * FROM credentials WHERE project = ? AND id > ? ORDER BY id LIMIT ?"

        def read(connection: sqlite3.Connection) -> Sequence[Credential]:
            return [_credential(row) for row in connection.execute(sql, (project, after, min(limit, MAX_PAGE)))]

        return await self._read(read)

    async def add_credential(self, credential: Credential, line: AuditLine) -> None:
        """See `Registry`."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT INTO credentials VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", _credential_row(credential)
            )
            _append(connection, [line])

        await self._write(write)

    async def revoke(self, credential: Credential, line: AuditLine) -> bool:
        """See `Registry`."""
        sql = "UPDATE credentials SET revoked_at = ? WHERE id = ? AND project = ? AND revoked_at IS NULL"

        def write(connection: sqlite3.Connection) -> bool:
            found = connection.execute(sql, (line.at, credential.id, credential.project)).rowcount == 1
            if found:
                _append(connection, [line])
            return found

        return await self._write(write)

    async def rule_set(self, project: str) -> RuleSet | None:
        """See `Registry`."""

        def read(connection: sqlite3.Connection) -> RuleSet | None:
            row = connection.execute("SELECT * FROM rule_sets WHERE project = ?", (project,)).fetchone()
            return None if row is None else RuleSet(*row)

        return await self._read(read)

    async def put_rule_set(self, rule_set: RuleSet, line: AuditLine) -> bool:
        """See `Registry`."""
        row = (
            rule_set.project,
            rule_set.name,
            rule_set.acquire,
            rule_set.renew,
            rule_set.installed_at,
            rule_set.installed_by,
        )

        def write(connection: sqlite3.Connection) -> bool:
            other = "SELECT 1 FROM rule_sets WHERE project = ? AND name <> ?"
            if connection.execute(other, (rule_set.project, rule_set.name)).fetchone():
                return False
            connection.execute("INSERT OR REPLACE INTO rule_sets VALUES (?, ?, ?, ?, ?, ?)", row)
            _append(connection, [line])
            return True

        return await self._write(write)

    async def delete_rule_set(self, project: str, name: str, *, line: AuditLine) -> bool:
        """See `Registry`."""

        def write(connection: sqlite3.Connection) -> bool:
            sql = "DELETE FROM rule_sets WHERE project = ? AND name = ?"
            found = connection.execute(sql, (project, name)).rowcount == 1
            if found:
                _append(connection, [line])
            return found

        return await self._write(write)

    async def bind_request(self, project: str, request_id: str, *, digest: bytes, until: float, now: float) -> bytes:
        """See `Registry`."""

        def write(connection: sqlite3.Connection) -> bytes:
            _forget_requests(connection, project, now=now)
            connection.execute(
                "INSERT INTO requests (project, id, digest, until) VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE"
                " SET digest = excluded.digest, until = excluded.until WHERE until <= ?",
                (project, request_id, digest, until, now),
            )
            sql = "SELECT digest FROM requests WHERE project = ? AND id = ?"
            return bytes(connection.execute(sql, (project, request_id)).fetchone()[0])

        return await self._write(write)

    async def write_audit(self, lines: Sequence[AuditLine]) -> None:
        """See `Registry`."""
        await self._write(lambda connection: _append(connection, lines))

    async def audit(self, project: str, *, before: int | None = None, limit: int = MAX_PAGE) -> Sequence[AuditLine]:
        """See `Registry`."""
        sql = "SELECT * FROM audit WHERE project = ? AND number < ? ORDER BY number DESC LIMIT ?"
        top = 2**63 - 1 if before is None else before

        def read(connection: sqlite3.Connection) -> Sequence[AuditLine]:
            rows = connection.execute(sql, (project, top, min(limit, MAX_PAGE)))
            return [replace(AuditLine(*row), number=number) for number, *row in rows]

        return await self._read(read)

    async def write_holds(self, begun: Sequence[PastHold], ended: Sequence[HoldEnd], *, room: Room) -> None:
        """See `HoldsKept`."""
        await self._write(
            lambda connection: holds.keep(connection, begun, ended=ended, room=room, surplus=self._surplus)
        )

    async def holds(self, project: str, key: str, *, limit: int) -> Sequence[PastHold]:
        """See `HoldsKept`."""
        return await self._read(lambda connection: holds.last(connection, project, key=key, limit=limit))

    async def close(self) -> None:
        """See `Registry`."""
        if self._closed:
            return
        self._closed = True
        await self._reads.close()
        await self._writes.close()

    async def _read(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run work on one state of the file."""
        self._check_open()
        return await self._reads.run(work)

    async def _write(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run work as one step that happens as a whole, or not at all."""
        self._check_open()
        return await self._writes.run(work)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreNotUsable(f"the registry {self.path} was closed", hint="connect again")


class _File:
    """The file that is used: made if there is none when it is first opened, and no other one afterwards."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._opening = Lock()
        self._opened: tuple[int, int] | None = None  # device and number of the file

    def connect(self, wait: float) -> sqlite3.Connection:
        """A connection to it; opening may wait so many seconds for others."""
        with self._opening:
            self.check()
            connection = _open(self._path, timeout=wait)
            if self._opened is None:
                self._opened = self._there()
            return connection

    def check(self) -> None:
        """Raise `StoreNotUsable` where the path leads to another file by now, or to none: what would be read is out of
        date, and what would be written is lost."""
        if self._opened is not None and self._there() != self._opened:
            raise StoreNotUsable(
                f"the registry {self._path} was deleted or replaced while it was in use",
                hint="restart the service; to restore a backup, stop it first",
            )

    def _there(self) -> tuple[int, int] | None:
        try:
            state = os.stat(self._path)
        except FileNotFoundError:
            return None
        return state.st_dev, state.st_ino


def has_credentials(path: str, *, timeout: float) -> bool:
    """Whether an API key was ever made in the registry of that file; where there is none, that is false.

    Raises `StoreUnavailable` where nobody can tell within `timeout` seconds.
    """
    if not os.path.exists(path):
        return False
    try:
        with closing(_open(path, timeout=timeout)) as connection:
            return connection.execute("SELECT 1 FROM credentials LIMIT 1").fetchone() is not None
    except Exception as error:
        raise failure(path, error) from error


def _open(path: str, *, timeout: float) -> sqlite3.Connection:
    """The file, made first if there is none, with the tables in it."""
    if not os.path.exists(path):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    state = os.stat(path)  # not by a descriptor of ours: closing that would undo the locks of another connection
    if stat.S_ISDIR(state.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(state.st_mode):
        raise StoreNotUsable(f"{path} is not a file", hint="name a file, which may be one that does not exist yet")
    if state.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StoreNotUsable(f"{path} can be changed by others, who could let themselves in", hint=f"chmod 600 {path}")
    if not os.access(path, os.R_OK | os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        if not _is_known(connection):  # or opening would wait for whoever writes
            connection.execute("BEGIN IMMEDIATE")
            _check_schema(connection, path)
            connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _is_known(connection: sqlite3.Connection) -> bool:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return bool(application == APPLICATION_ID and version == SCHEMA_VERSION)


def _check_schema(connection: sqlite3.Connection, path: str) -> None:
    """Make the tables in an empty file; refuse the file of another program or of a later release."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application == APPLICATION_ID and version == SCHEMA_VERSION:
        return
    if application == APPLICATION_ID:
        raise StoreNotUsable(f"{path} is a registry of another release (version {version})", hint="use that release")
    if application or connection.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise StoreNotUsable(f"{path} is no registry but belongs to another program", hint="choose another path")
    for statement in _statements():
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _statements() -> Sequence[str]:
    """The schema, statement by statement: a script would end the transaction that it stands in."""
    found, text = [], ""
    for line in _SCHEMA.splitlines(keepends=True):
        text += line
        if sqlite3.complete_statement(text):
            found.append(text)
            text = ""
    return found


def _append(connection: sqlite3.Connection, lines: Sequence[AuditLine]) -> None:
    for line in lines:
        row = (line.project, line.at, line.actor, line.action, line.target, line.detail, line.count)
        connection.execute("INSERT INTO audit VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", row)


def _forget_requests(connection: sqlite3.Connection, project: str, *, now: float) -> None:
    """Remove some that are over, and the one that ends first where there are too many."""
    over = "DELETE FROM requests WHERE rowid IN (SELECT rowid FROM requests WHERE project = ? AND until <= ? LIMIT ?)"
    removed = connection.execute(over, (project, now, _SWEPT_AT_ONCE)).rowcount
    if not removed:
        full = "SELECT 1 FROM requests WHERE project = ? LIMIT 1 OFFSET ?"
        if connection.execute(full, (project, MAX_REQUESTS - 1)).fetchone():
            connection.execute(
                "DELETE FROM requests WHERE rowid = "
                "(SELECT rowid FROM requests WHERE project = ? ORDER BY until LIMIT 1)",
                (project,),
            )


def _credential_row(one: Credential) -> Sequence[Any]:
    groups, scopes = json.dumps(sorted(one.groups)), json.dumps(sorted(one.scopes))
    whom = (one.id, one.project, one.kind, one.name, one.digest, one.role, groups, scopes)
    return (*whom, one.created_at, one.created_by, one.expires_at, one.revoked_at)


def _credential(row: Sequence[Any]) -> Credential:
    id_, project, kind, name, digest, role, groups, scopes, created_at, created_by, expires_at, revoked_at = row
    return Credential(
        id=id_,
        project=project,
        kind=kind,
        name=name,
        digest=bytes(digest),
        role=role,
        groups=frozenset((group, kind_) for group, kind_ in json.loads(groups)),
        scopes=frozenset(json.loads(scopes)),
        created_at=created_at,
        created_by=created_by,
        expires_at=expires_at,
        revoked_at=revoked_at,
    )
