"""What goes wrong on a disk: busy is not broken, broken is not busy, and nobody knows only where nobody can know."""

import contextlib
import os
import resource
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import leased
from leased.clocks import step
from leased.errors import StoreNotUsable, StoreUnavailable
from leased.model import Acquire, Claim, Contended, Held, Look, Operation, Release
from leased.stores._sqlite_driver import Connection, Cursor, Driver, standard
from leased.stores._sqlite_failures import from_library
from leased.stores.sqlite import SqliteStore
from tests.stores.sqlite.conftest import Make


def hold(store: SqliteStore, key: str = "key", token: str = "token", *, timeout: float = 2.0) -> Held | Contended:
    """One try to get a key."""
    return step(store.acquire(Claim(key, token, 30.0), timeout=timeout))


@contextmanager
def locked(path: Path, begin: str = "BEGIN EXCLUSIVE") -> Iterator[None]:
    """The file locked by another process, until the end of the block."""
    program = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute(sys.argv[2]);"
        "c.execute('SELECT * FROM store').fetchall(); print(flush=True); sys.stdin.read(); c.execute('ROLLBACK')"
    )
    command = [sys.executable, "-c", program, str(path), begin]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.stdin.close()
            process.wait()


@dataclass
class Faulty:
    """A connection whose statements fail as told: the beginning of the statement, and what happens then."""

    real: Connection
    faults: dict[str, list[Exception | None]]
    late: bool = False

    @property
    def in_transaction(self) -> bool:
        return self.real.in_transaction

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Cursor:
        for beginning, errors in self.faults.items():
            if sql.lstrip().startswith(beginning) and errors:
                error = errors.pop(0)
                if error is not None:
                    if self.late:
                        self.real.execute(sql, parameters)
                    raise error
        return self.real.execute(sql, parameters)

    def close(self) -> None:
        self.real.close()


@dataclass
class Faults:
    """A library that makes faulty connections; `faults` may be changed at any time."""

    faults: dict[str, list[Exception | None]] = field(default_factory=dict)
    late: bool = False

    def library(self) -> Driver:
        real = standard()
        return replace(real, connect=lambda path: Faulty(real.connect(path), self.faults, self.late))


def failure(code: int) -> Exception:
    """An error as Python's SQLite raises it."""
    error = sqlite3.OperationalError(f"error {code}")
    error.sqlite_errorcode = code
    return error


def test_a_locked_file_is_busy_until_the_deadline(make: Make, path: Path) -> None:
    """A file that others keep locked ends a call in its own time-out, saying that nothing happened (C063, C128)."""
    store = make()
    hold(store)
    with locked(path):
        for timeout in (0.0, 0.2):
            began = time.monotonic()
            with pytest.raises(StoreUnavailable, match="stayed locked by others") as caught:
                hold(store, "other", timeout=timeout)
            assert timeout <= time.monotonic() - began < timeout + 1.0
            assert not isinstance(caught.value, StoreNotUsable)
            assert (caught.value.applied, caught.value.retryable) == (False, True)
    assert isinstance(hold(store, "other"), Held)


def test_opening_a_locked_file_ends_in_time(make: Make, path: Path) -> None:
    """The first call of a process, which still has to look at the tables, keeps the time-out too (C063)."""
    store = make()
    hold(store)
    step(store.close())
    with locked(path):
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="locked by others") as caught:
            hold(make(), timeout=0.2)
        assert time.monotonic() - began < 1.2
        assert caught.value.applied is False


def test_a_call_waits_for_other_threads_in_its_own_time(make: Make, path: Path) -> None:
    """A thread that is kept waiting by another one's call on a locked file ends by its own time-out (C063)."""
    store = make()
    hold(store)
    ended: list[Exception] = []

    def patient() -> None:
        with pytest.raises(StoreUnavailable) as caught:
            hold(store, "other", timeout=1.5)
        ended.append(caught.value)

    with locked(path):
        thread = threading.Thread(target=patient)
        thread.start()
        began = time.monotonic()
        while not store._database._line.locked():
            assert time.monotonic() < began + 5.0
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="locked by others"):
            hold(store, "third", timeout=0.2)
        assert time.monotonic() - began < 1.0
        assert not ended
        thread.join()
    assert len(ended) == 1


def test_making_the_file_waits_for_its_turn_in_time(make: Make, path: Path) -> None:
    """Whoever finds another process making the file waits for it, but not beyond the time-out (C063)."""
    import fcntl

    turn = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(turn, fcntl.LOCK_EX)
        with pytest.raises(StoreUnavailable, match="locked by others"):
            hold(make(), timeout=0.1)
        fcntl.flock(turn, fcntl.LOCK_UN)
        assert isinstance(hold(make()), Held)
    finally:
        os.close(turn)


def test_readers_do_not_stop_a_commit_for_good(path: Path) -> None:
    """A commit that meets a reader is repeated, and a reader who stays ends it as not done."""
    store = SqliteStore(str(path), library=standard())
    hold(store)
    with locked(path, "BEGIN"), pytest.raises(StoreUnavailable, match="locked by others") as caught:
        hold(store, "other", timeout=0.2)
    assert caught.value.applied is False
    assert [status.key for status in step(store.list("", after="", limit=9, timeout=2.0))] == ["key"]
    step(store.close())


BUSY = [5, 6, 15, 17, 261, 517]
FULL = [13]
BROKEN = [1, 3, 8, 11, 14, 19, 20, 21, 23, 26, 267, 1032, 1288, 776]
NO_ANSWER = [7, 9, 10, 266, 778, 3850]


@pytest.mark.parametrize("statement", ["BEGIN", "SELECT", "INSERT", "COMMIT"])
@pytest.mark.parametrize("code", [*BUSY, *FULL, *BROKEN, *NO_ANSWER])
def test_every_error_is_read_as_what_it_is(path: Path, statement: str, code: int) -> None:
    """Busy is tried again until it works, what never will surfaces at once, and none of it reads as held (C121)."""
    faults = Faults()
    store = SqliteStore(str(path), library=faults.library())
    hold(store, "first")
    faults.faults[statement] = [failure(code)] * 3
    if code in BUSY:
        assert isinstance(hold(store), Held)
        return
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match=str(path)) as caught:
        hold(store, timeout=30.0)
    assert time.monotonic() - began < 5.0
    assert isinstance(caught.value, StoreNotUsable) == (code in BROKEN)
    unknown = statement == "COMMIT" and code in NO_ANSWER
    assert caught.value.applied is (None if unknown else False)
    assert isinstance(caught.value.__cause__, sqlite3.Error)
    faults.faults.clear()
    assert isinstance(hold(store, token="next"), Held)
    step(store.close())


def test_a_commit_that_failed_after_all_is_found_by_asking_again(path: Path) -> None:
    """When a commit took place and its answer was lost, the same claim gets the same grant."""
    faults = Faults(late=True)
    store = SqliteStore(str(path), library=faults.library())
    hold(store, "first")
    faults.faults["COMMIT"] = [failure(10)]
    with pytest.raises(StoreUnavailable) as caught:
        hold(store)
    assert caught.value.applied is None
    again = hold(store)
    assert isinstance(again, Held)
    assert isinstance(hold(store, token="other"), Contended)
    step(store.close())


def test_a_full_disk_is_named(make: Make) -> None:
    """Where nothing more can be written the error says so and what helps; readers go on (C121). It may be over soon, so
    it is no reason to give up a lease that goes on in the file (H1)."""
    store = make()
    hold(store)
    connection = store._database._file.connection  # type: ignore[union-attr]  # it is open
    for sql in ("PRAGMA wal_autocheckpoint = 0", "PRAGMA max_page_count = 1"):
        connection.execute(sql).fetchone()
    operations = [Acquire(Claim(f"key-{number:0200}", "other", 30.0)) for number in range(100)]
    outcomes = step(store.many(operations, timeout=2.0))
    for outcome in outcomes:
        assert isinstance(outcome, StoreUnavailable)
        assert outcome.retryable
        assert outcome.applied is False
    assert "full" in str(outcomes[0])
    assert "free some space" in str(outcomes[0])
    assert isinstance(step(store.look("key", "token", timeout=2.0)), Held)


def test_a_lease_outlives_a_full_disk(path: Path) -> None:
    """H1: a renewal for which there is no space is tried again; the lease is not given up."""
    events: list[leased.Event] = []
    locks = leased.connect(f"sqlite:{path}", observer=events.append)

    def seen(name: str) -> None:
        give_up_at = time.monotonic() + 8
        while name not in [event.name for event in list(events)]:
            assert time.monotonic() < give_up_at
            time.sleep(0.005)

    with locks.lock("k", ttl=3) as held:
        store: Any = locks._client().store
        write = store._store._database.write

        def full(*_: object) -> Any:
            raise from_library(str(path), failure(13))

        store._store._database.write = full
        seen("renewal_failed")
        store._store._database.write = write
        seen("renewed")
        assert held.remaining() > 0.5
    locks.close()


def test_a_failed_batch_fails_for_each_member(path: Path) -> None:
    """When the one commit of a batch fails every member gets the failure, as an error of its own."""
    faults = Faults()
    store = SqliteStore(str(path), library=faults.library())
    hold(store)
    faults.faults["COMMIT"] = [failure(10)]
    operations: list[Operation] = [Acquire(Claim("a", "1", 30.0)), Release("key", "token"), Look("key", "token")]
    outcomes = step(store.many(operations, timeout=2.0))
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 3
    assert len({id(outcome) for outcome in outcomes}) == 3
    assert all(isinstance(outcome, StoreUnavailable) and outcome.applied is None for outcome in outcomes)
    step(store.close())


def test_an_interrupted_call_leaves_no_transaction(path: Path) -> None:
    """Ctrl-C in the middle of a call does not keep the file locked for others."""
    faults = Faults()
    store, other = SqliteStore(str(path), library=faults.library()), SqliteStore(str(path), library=standard())
    hold(store)
    for statement in ("INSERT", "COMMIT"):
        faults.faults[statement] = [KeyboardInterrupt()]  # type: ignore[list-item]  # it is no Exception, on purpose
        with pytest.raises(KeyboardInterrupt):
            hold(store, "other")
        assert isinstance(hold(other, statement, timeout=0.5), Held)
    step(store.close())
    step(other.close())


def test_too_many_open_files_are_no_broken_store(make: Make, path: Path) -> None:
    """A process at its limit of files is told that, and that trying again can help (C121)."""
    store = make()
    hold(store)
    step(store.close())
    other = make()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(taken[0], 200), limits[1]))
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        with pytest.raises(StoreUnavailable, match="limit of open files") as caught:
            hold(other)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for file in taken:
            os.close(file)
    assert not isinstance(caught.value, StoreNotUsable)
    assert isinstance(hold(other, token="other"), Contended)


def test_a_fork_that_python_does_not_hear_of(make: Make, library: Driver) -> None:
    """After one, the inherited connection is neither used nor closed, and with a log the store refuses to work: SQLite
    would take the locks of the parent for its own."""
    store = make()
    hold(store)
    inherited = store._database._file
    assert inherited is not None
    store._database._process = -1  # as if this were another process by now
    if library.wal:
        with pytest.raises(StoreNotUsable, match="forked.*only after such a fork"):
            hold(store, token="other")
    else:
        assert isinstance(hold(store, token="other"), Contended)
        assert store._database._file is not inherited
    assert not inherited.connection.in_transaction  # it is still open


UNPRIVILEGED = """
import os, sys, time
from leased.clocks import step
from leased.errors import LeasedError
from leased.model import Claim
from leased.stores.sqlite import SqliteStore

def attempt(path):
    return step(SqliteStore(path).acquire(Claim("other", "token", 30.0), timeout=30.0))

attempt(sys.argv[2])  # by now everything is imported, which the other user may not be allowed to read
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
began = time.monotonic()
try:
    print(attempt(sys.argv[1]))
except LeasedError as error:
    print(type(error).__name__, error, time.monotonic() - began < 5)
"""


@pytest.mark.parametrize("case", ["file", "directory", "unreachable", "new"])
def test_missing_permission_is_not_busy(tmp_path: Path, case: str) -> None:
    """Without the right to write, to the file or beside it, a call fails at once and says what is needed (C135)."""
    place = tmp_path / "place"
    place.mkdir()
    path = place / "locks.db"
    for parent in (tmp_path, *tmp_path.parents):
        if os.stat(parent).st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    if case != "new":
        store = SqliteStore(str(path), library=standard())
        hold(store)
        step(store.close())
        Path(f"{path}-journal").unlink()
    path_mode = {"file": 0o444, "directory": 0o666, "unreachable": 0o666, "new": None}[case]
    if path_mode is not None:
        path.chmod(path_mode)
    place.chmod({"file": 0o777, "directory": 0o555, "unreachable": 0o000, "new": 0o555}[case])
    command = [sys.executable, "-c", UNPRIVILEGED, str(path), str(tmp_path / "other.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    place.chmod(0o755)
    assert done.stdout.startswith("StoreNotUsable"), done.stdout
    assert str(path) in done.stdout
    assert "permission to write" in done.stdout
    assert done.stdout.rstrip().endswith("True")


def test_a_caller_with_a_transaction_of_his_own_is_left_alone(make: Make, tmp_path: Path) -> None:
    """A program in the middle of a transaction on its own database goes on unharmed, whatever a lock answers (C113)."""
    store = make()
    with closing(sqlite3.connect(tmp_path / "mine.db")) as mine:
        mine.execute("CREATE TABLE data (value)")
        mine.execute("INSERT INTO data VALUES (1)")
        assert isinstance(hold(store), Held)
        assert isinstance(hold(store, token="other"), Contended)
        assert mine.in_transaction
        mine.rollback()
        assert mine.execute("SELECT count(*) FROM data").fetchall() == [(0,)]
