"""Finding, making and opening the file of the SQLite store; it is never deleted here, and nothing is locked in it."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from leased.errors import StoreNotUsable
from leased.stores._sqlite_driver import Connection, Driver, verdict
from leased.stores._sqlite_failures import Patience, busy, from_library, from_system, replaced
from leased.stores._sqlite_record import SCHEMA, SCHEMA_VERSION

APPLICATION_ID = 0x6C656173
"""By which the file is known as ours: "leas"."""

_NETWORK = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "drvfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs",
    "nfs", "nfs3", "nfs4", "ocfs2", "prl_fs", "smb2", "smb3", "smbfs", "sshfs", "s3fs", "rclone", "vboxsf", "virtiofs",
})  # fmt: skip
_BESIDE = ("-journal", "-wal", "-shm")
_SWITCH_TIME = 0.5
_log = logging.getLogger("leased.sqlite")
_told: set[str] = set()

Identity = tuple[int, int]
"""Device and inode: which file it is, whatever it is called."""


@dataclass(frozen=True, slots=True)
class OpenFile:
    """The open file: its connection, which file it is, how it keeps its journal, and the boot it was opened in."""

    connection: Connection
    identity: Identity
    journal: str
    boot_id: str


def identity_of(path: str) -> Identity | None:
    """Which file the path leads to, without opening it: closing it again would undo SQLite's locks."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def open_file(path: str, *, library: Driver, boot_id: str, patience: Patience) -> OpenFile:
    """Open the file, made first if it does not exist, with the tables in it and this boot on record."""
    try:
        real = os.path.realpath(path)
        _refuse_network(real)
        if not os.path.exists(real):
            _make(real, library, boot_id=boot_id, patience=patience)
        found = os.stat(real)
        if not stat.S_ISREG(found.st_mode):
            raise StoreNotUsable(f"{path} is not a file", hint="name a file, which may be one that does not exist yet")
        if found.st_nlink > 1:
            raise StoreNotUsable(
                f"{path} has {found.st_nlink} names (hard links), and who uses another one is not excluded",
                hint="remove the other names, or copy the file",
            )
    except OSError as error:
        raise from_system(path, error) from error
    while True:
        identity = identity_of(real)
        connection = _connect(real, library)
        try:
            journal = _set_up(connection, real, library, boot_id=boot_id, patience=patience)
        except BaseException:
            connection.close()
            raise
        if identity is not None and identity == identity_of(path):
            _tell_once(path, library, journal)
            return OpenFile(connection, identity, journal, boot_id)
        connection.close()
        if not patience.nap():
            raise replaced(path)


def file_system(directory: str, mounts: str) -> str:
    """The type of the file system that holds a directory, from the text of /proc/self/mountinfo; "" if not found."""
    longest, found = -1, ""
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        point = before.split(" ")[4].encode().decode("unicode_escape").encode("latin-1").decode(errors="replace")
        inside = directory == point or directory.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= longest:
            longest, found = len(point), after.split(" ")[0]
    return found


def _refuse_network(path: str) -> None:
    try:
        mounts = Path("/proc/self/mountinfo").read_text()
    except OSError:
        return  # not Linux: it cannot be told
    kind = file_system(os.path.dirname(path), mounts)
    if kind.removeprefix("fuse.") in _NETWORK:
        raise StoreNotUsable(
            f"{path} lies on a file system of type {kind}, which other machines may share: locks in a file there"
            " exclude nobody reliably",
            hint="choose a local path, or a store with a server",
        )


def _make(path: str, library: Driver, *, boot_id: str, patience: Patience) -> None:
    """Make the file beside its place and link it there when it is complete: nobody ever sees half of it.

    Makers take turns by a lock on the directory. So what lies beside a path with no file belongs to one that was
    deleted, and must go: SQLite would take it for a part of the new one.
    """
    directory = os.path.dirname(path)
    _make_directories(directory)
    turn = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _take_turn(turn, path, patience)
        if os.path.exists(path):
            return
        draft = f"{path}.new"
        for name in (draft, *(f"{base}{ending}" for base in (path, draft) for ending in _BESIDE)):
            Path(name).unlink(missing_ok=True)
        os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        connection = _connect(draft, library)
        try:
            _set_up(connection, draft, library, boot_id=boot_id, patience=patience)
            if library.wal:
                connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except library.error as error:
            raise from_library(path, error) from error
        finally:
            connection.close()
        os.rename(draft, path)
        os.fsync(turn)
    finally:
        os.close(turn)


def _make_directories(directory: str) -> None:
    """Make what is missing of a directory, for this user only."""
    if not os.path.isdir(directory):
        _make_directories(os.path.dirname(directory))
        try:
            os.mkdir(directory, 0o700)
        except FileExistsError:
            if not os.path.isdir(directory):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), directory) from None


def _take_turn(directory: int, path: str, patience: Patience) -> None:
    while True:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not patience.nap():
                raise busy(path, patience) from None


def _connect(path: str, library: Driver) -> Connection:
    try:
        return library.connect(path)
    except library.error as error:
        raise from_library(path, error) from error


def _set_up(connection: Connection, path: str, library: Driver, *, boot_id: str, patience: Patience) -> str:
    """Bring a connection to where it can serve, again and again while others are in the way; the journal mode."""
    while True:
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA fullfsync = ON")  # macOS: an fsync that reaches the disk
            connection.execute("PRAGMA trusted_schema = OFF")
            _ensure_tables(connection, path, boot_id)
            _note_boot(connection, boot_id)
            return _choose_journal(connection, path, library)
        except library.error as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if verdict(error) != "busy":
                raise from_library(path, error) from error
            if not patience.nap():
                raise busy(path, patience) from error


def _ensure_tables(connection: Connection, path: str, boot_id: str) -> None:
    """Check whose file it is, and lay out an empty one. Looks before it writes: most openings change nothing."""
    if not _is_empty(connection, path):
        return
    connection.execute("BEGIN IMMEDIATE")
    if _is_empty(connection, path):
        for statement in SCHEMA:
            connection.execute(statement)
        connection.execute("INSERT INTO store VALUES (?, 1, 0)", (boot_id,))
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")


def _is_empty(connection: Connection, path: str) -> bool:
    """Whether the file has no tables at all; raises if it is not ours, or of another version."""
    application, version, tables = connection.execute(
        "SELECT a.application_id, u.user_version, (SELECT count(*) FROM sqlite_master)"
        " FROM pragma_application_id a, pragma_user_version u"
    ).fetchone()
    if tables == 0 and application == 0:
        return True
    if application != APPLICATION_ID:
        raise StoreNotUsable(
            f"{path} is the SQLite database of another program", hint="name another file; leased keeps one of its own"
        )
    if version != SCHEMA_VERSION:
        raise StoreNotUsable(
            f"{path} has version {version} of the tables, and this leased knows version {SCHEMA_VERSION}",
            hint="let all users of the file run the same release of leased",
        )
    return False


def _note_boot(connection: Connection, boot_id: str) -> None:
    """Count another boot than the last one as a new one: with it, all leases that were held are over."""
    if connection.execute("SELECT boot_id FROM store").fetchone()[0] != boot_id:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE store SET boot_id = ?, boot = boot + 1 WHERE boot_id <> ?", (boot_id, boot_id))
        connection.execute("COMMIT")


def _choose_journal(connection: Connection, path: str, library: Driver) -> str:
    """Use the mode that the file has: it was chosen when the file was made, so that its users cannot disagree.

    A write-ahead log is used only by an SQLite without the WAL-reset bug. Another one switches the file to a rollback
    journal for good, which SQLite allows while nobody else has it open, and otherwise does not touch it.
    """
    if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        if library.wal:
            return "wal"
        _leave_wal(connection, path, library)
    return str(connection.execute("PRAGMA journal_mode = PERSIST").fetchone()[0])


def _leave_wal(connection: Connection, path: str, library: Driver) -> None:
    patience = Patience(_SWITCH_TIME)
    while True:
        try:
            if connection.execute("PRAGMA journal_mode = PERSIST").fetchone()[0] != "wal":
                _log.warning("%s now has a rollback journal: SQLite %s must not use WAL", path, library.version_text)
                return
        except library.error as error:
            if verdict(error) != "busy":
                raise
        if not patience.nap():
            raise StoreNotUsable(
                f"{path} is in WAL mode and in use, and SQLite {library.version_text} could damage it in that mode",
                hint="pip install 'leased[sqlite]' here too, or stop the other users of the file once",
            )


def _tell_once(path: str, library: Driver, journal: str) -> None:
    """Say once why the file is slower than it could be, and what helps."""
    if journal == "wal" or path in _told:
        return
    _told.add(path)
    if library.wal:
        _log.info("%s has a rollback journal, as the SQLite that made it needed one: a new file would be faster", path)
    else:
        _log.info(
            "SQLite %s has a bug in its WAL mode, which is therefore not used: writing to %s takes longer; "
            "pip install 'leased[sqlite]' brings a newer one",
            library.version_text,
            path,
        )
