"""The file itself: how it is made, whose it must be, which journal it has, and what its disappearance means."""

import asyncio
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from leased.clocks import BlockingClock, step
from leased.errors import InvalidRequest, StoreNotUsable
from leased.model import Claim, Contended, Held, Lost
from leased.stores import _sqlite_file
from leased.stores._sqlite_driver import Driver, newer, standard
from leased.stores.sqlite import SqliteStore
from leased.stores.sqlite import open as open_store
from leased.targets import Options
from tests.stores.sqlite.conftest import Make, libraries, rows


def hold(store: SqliteStore, key: str = "key", token: str = "token") -> Held | Contended:
    """One try to get a key."""
    return step(store.acquire(Claim(key, token, 30.0), timeout=2.0))


def mode_of(path: Path) -> int:
    """Permission bits."""
    return stat.S_IMODE(path.stat().st_mode)


def make_foreign(path: Path, sql: str = "CREATE TABLE users (id)") -> None:
    """An SQLite database of somebody else."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(sql)
        connection.commit()


def test_nothing_is_opened_before_first_use(make: Make, path: Path) -> None:
    """A store that was only made touches no disk, and says so."""
    store = make()
    assert "not opened yet" in store.assurance().notes[0]
    assert not path.exists()


def test_the_file_is_for_its_owner_only(make: Make, tmp_path: Path) -> None:
    """The file, what lies beside it and the directories made for it are closed to other users, whatever the umask."""
    path = tmp_path / "new" / "deep" / "locks.db"
    before = os.umask(0)
    try:
        store = make(path)
        hold(store)
        step(store.watch("key", lambda: None))
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "new") == mode_of(tmp_path / "new" / "deep") == 0o700
    beside = [entry for entry in path.parent.rglob("*") if not entry.is_dir()]
    assert len(beside) >= 4
    assert {mode_of(entry) for entry in beside} == {0o600}
    assert {mode_of(entry) for entry in path.parent.rglob("*") if entry.is_dir()} == {0o700}


def test_the_pipes_of_a_shared_file_are_shared(make: Make, path: Path) -> None:
    """Who may write to the file, by its permission bits, may also wake its waiters and take turns."""
    hold(make())
    path.chmod(0o660)
    Path(f"{path}-turn").unlink()
    other = make()
    hold(other)
    step(other.watch("key", lambda: None))
    (folder,) = (entry for entry in Path(f"{path}-bells").iterdir() if entry.is_dir())
    (pipe,) = folder.iterdir()
    assert [mode_of(entry) for entry in (pipe, folder, folder.parent)] == [0o660, 0o770, 0o770]
    assert mode_of(Path(f"{path}-turn")) == 0o660


def test_an_empty_file_is_taken_over(make: Make, path: Path) -> None:
    """A file of no bytes, as mktemp makes it, becomes the store's with the permissions that it has."""
    path.touch(0o640)
    path.chmod(0o640)
    assert isinstance(hold(make()), Held)
    assert mode_of(path) == 0o640


def test_a_link_leads_to_the_file(make: Make, path: Path, tmp_path: Path) -> None:
    """Stores that reach the file by a symbolic link and directly see one set of locks."""
    link = tmp_path / "link.db"
    link.symlink_to(path)
    assert isinstance(hold(make(link)), Held)
    assert isinstance(hold(make(), token="other"), Contended)
    assert link.is_symlink()


def test_a_second_name_of_the_file_is_refused(make: Make, path: Path, tmp_path: Path) -> None:
    """Under a hard link SQLite would keep another journal: both names are refused, and one alone works again."""
    assert isinstance(hold(make()), Held)
    second = tmp_path / "second.db"
    os.link(path, second)
    for name in (path, second):
        with pytest.raises(StoreNotUsable, match="2 names"):
            hold(make(name), token="other")
    second.unlink()
    assert isinstance(hold(make(), token="other"), Contended)


def test_a_pipe_in_the_place_of_the_turn_holds_nobody(make: Make, path: Path) -> None:
    """What stands where the file for turns belongs makes nobody wait, whatever it is (C063)."""
    os.mkfifo(f"{path}-turn")
    assert isinstance(hold(make()), Held)
    assert isinstance(hold(make(), token="other"), Contended)


@pytest.mark.parametrize("url", ["sqlite:a%00b", "sqlite:a\0b", "sqlite:x\udcff.db", "sqlite:x%FF.db"])
def test_a_path_that_is_no_text_is_refused_by_the_url(url: str) -> None:
    """A path with NUL, or that is not UTF-8, is `InvalidRequest` and never another file."""
    with pytest.raises(InvalidRequest, match="NUL|not UTF-8"):
        open_store(url, face="blocking", options=Options(BlockingClock()))


def test_a_relative_path_means_the_directory_of_its_making(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that changes its directory later keeps its locks."""
    monkeypatch.chdir(tmp_path)
    store = make(Path("mine.db"))
    monkeypatch.chdir("/")
    hold(store)
    assert (tmp_path / "mine.db").exists()


@pytest.mark.parametrize(
    "content", [b"this is text, and more of it than a header of SQLite has\n" * 40, b"SQLite format 3\0" + b"x" * 900]
)
def test_what_is_no_database_is_refused(make: Make, path: Path, content: bytes) -> None:
    """A file with other content is not touched; the error names it (C121)."""
    path.write_bytes(content)
    with pytest.raises(StoreNotUsable, match=str(path)):
        hold(make())
    assert path.read_bytes() == content


@pytest.mark.parametrize("sql", ["CREATE TABLE users (id)", "PRAGMA application_id = 7", "PRAGMA journal_mode = WAL"])
def test_a_foreign_database_is_refused(make: Make, path: Path, sql: str) -> None:
    """A database of another program gets no tables of ours, and the error says what to do."""
    make_foreign(path, sql)
    make_foreign(path, "CREATE TABLE IF NOT EXISTS users (id)")
    with pytest.raises(StoreNotUsable, match="another program.*keeps one of its own"):
        hold(make())
    assert rows(path, "SELECT name FROM sqlite_master") == [("users",)]


def test_a_newer_version_of_the_tables_is_refused(make: Make, path: Path) -> None:
    """A file that a later release has changed is left alone; the error names both versions."""
    store = make()
    hold(store)
    step(store.close())
    make_foreign(path, "PRAGMA user_version = 7")
    with pytest.raises(StoreNotUsable, match="version 7 .* version 1"):
        hold(make())


def test_a_directory_is_no_file(make: Make, tmp_path: Path) -> None:
    """A path to a directory, or below a file, is refused at once and named."""
    with pytest.raises(StoreNotUsable, match=f"{tmp_path} is not a file"):
        hold(make(tmp_path))
    (tmp_path / "file").touch()
    with pytest.raises(StoreNotUsable, match="Not a directory"):
        hold(make(tmp_path / "file" / "locks.db"))


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "9p"])
def test_a_network_file_system_is_refused(make: Make, path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where other machines may share the directory no lock is given; the error names the type and the next step."""
    monkeypatch.setattr(_sqlite_file, "file_system", lambda directory, mounts: kind)
    with pytest.raises(StoreNotUsable, match=f"type {kind}.*local path"):
        hold(make())
    assert not path.exists()


def test_the_file_system_of_a_path_is_that_of_the_last_deepest_mount() -> None:
    """A mount counts for what lies in it, the latest over the earlier, with blanks in its name; others do not."""
    mounts = "\n".join([
        "1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/root rw",
        "2 1 0:40 / /srv/data rw - ext4 /dev/b rw",
        "3 1 0:41 / /srv/data rw - nfs4 server:/data rw",
        r"4 1 0:42 / /srv/with\040blank\303\244 rw - fuse.sshfs host: rw",
    ])  # fmt: skip
    places = ["/srv/data", "/srv/data/sub", "/srv/database", "/srv/with blankä/x", "/"]
    found = [_sqlite_file.file_system(place, mounts) for place in places]
    assert found == ["nfs4", "nfs4", "ext4", "fuse.sshfs", "ext4"]


def test_this_file_system_is_recognised(tmp_path: Path) -> None:
    """The real table of mounts can be read, and this directory is found in it."""
    mounts = Path("/proc/self/mountinfo")
    if not mounts.exists():
        pytest.skip("this system has no /proc")  # never in CI, which is Linux
    assert _sqlite_file.file_system(str(tmp_path), mounts.read_text())


def test_a_wal_is_used_only_where_it_is_safe(make: Make, library: Driver, path: Path) -> None:
    """The file gets a write-ahead log from an SQLite without the WAL-reset bug, else a rollback journal."""
    store = make()
    hold(store)
    expected = "wal" if library.wal else "persist"
    assert f"journal mode {expected}" in store.assurance().notes[0]
    step(store.close())
    assert path.read_bytes()[18] == (2 if library.wal else 1)


def test_a_slow_journal_is_told_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A line in the log says why there is no write-ahead log and what helps, once per file; with one there is none."""
    old, new = libraries()
    with caplog.at_level("INFO", "leased.sqlite"):
        for name, library in (("fast.db", new), ("slow.db", old), ("slow.db", old), ("late.db", old)):
            store = SqliteStore(str(path.with_name(name)), library=library)
            hold(store)
            step(store.close())
    told = [record.getMessage() for record in caplog.records]
    assert [("slow.db" in line, "late.db" in line) for line in told] == [(True, False), (False, True)]
    assert all("pip install 'leased[sqlite]'" in line for line in told)


@pytest.mark.parametrize(
    ("version", "safe"),
    [
        ((3, 40, 1), False), ((3, 44, 5), False), ((3, 44, 6), True), ((3, 45, 0), False), ((3, 50, 6), False),
        ((3, 50, 7), True), ((3, 51, 2), False), ((3, 51, 3), True), ((3, 53, 0), True), ((4, 0, 0), True),
    ],
)  # fmt: skip
def test_versions_with_the_wal_bug_are_known(version: tuple[int, ...], safe: bool) -> None:
    """Exactly the releases that have the repair count as safe, also on older lines."""
    assert Driver("any", version, standard().connect, sqlite3.Error).wal is safe


def test_the_file_keeps_its_rollback_journal(path: Path) -> None:
    """A newer SQLite does not switch a file to a log that older ones among its users must not use."""
    old, new = (SqliteStore(str(path), library=library) for library in libraries())
    hold(old)
    step(old.close())
    hold(new, "other")
    assert "persist" in new.assurance().notes[0]
    step(new.close())
    assert path.read_bytes()[18] == 1


def test_an_old_sqlite_turns_the_log_off_for_good(path: Path) -> None:
    """A log that the SQLite at hand must not use is left while nobody has the file open; leases stay as they were."""
    old, new = (SqliteStore(str(path), library=library) for library in libraries())
    hold(new)
    step(new.close())
    assert isinstance(hold(old, token="other"), Contended)
    step(old.close())
    assert path.read_bytes()[18] == 1


def test_the_library_is_pythons_own_unless_another_is_better() -> None:
    """Python's SQLite is used where its log is safe, otherwise the extra's if that one is."""
    used = _sqlite_file_driver()
    found = newer()
    assert used.name == ("sqlite3" if standard().wal or found is None or not found.wal else "apsw")


def _sqlite_file_driver() -> Driver:
    from leased.stores._sqlite_driver import driver

    return driver()


def test_a_deleted_file_ends_its_leases(make: Make, path: Path) -> None:
    """Who goes on with a deleted file is told that the store is lost, and holds nothing in the next one (C132)."""
    store = make()
    assert isinstance(hold(store), Held)
    path.unlink()
    with pytest.raises(StoreNotUsable, match="deleted or replaced"):
        step(store.renew("key", "token", ttl=30.0, number=1, timeout=2.0))
    assert step(store.renew("key", "token", ttl=30.0, number=2, timeout=2.0)) == Lost("expired")
    assert isinstance(hold(store, token="next"), Held)


def test_of_two_holders_in_two_files_one_passes_a_renewal(make: Make, path: Path) -> None:
    """When the file is made anew under live handles, the old holder never renews beside the new one (C132)."""
    old, new = make(), make()
    first = hold(old)
    path.unlink()
    second = hold(new, token="second")
    assert isinstance(first, Held)
    assert isinstance(second, Held)
    assert second.lease.fencing_token > first.lease.fencing_token
    with pytest.raises(StoreNotUsable):
        step(old.renew("key", "token", ttl=30.0, number=1, timeout=2.0))
    assert isinstance(step(new.renew("key", "second", ttl=30.0, number=1, timeout=2.0)), Held)
    assert step(old.renew("key", "token", ttl=30.0, number=2, timeout=2.0)) == Lost("taken")
    assert isinstance(hold(old, token="third"), Contended)


def test_a_file_replaced_during_a_call_gives_no_answer(
    make: Make, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A renewal that was committed to a file which is no longer there by then does not count (C132)."""
    store = make()
    hold(store)
    look = iter([_sqlite_file.identity_of(str(path)), (0, 0)])
    monkeypatch.setattr("leased.stores._sqlite_database.identity_of", lambda path: next(look))
    with pytest.raises(StoreNotUsable, match="deleted or replaced"):
        step(store.renew("key", "token", ttl=30.0, number=1, timeout=2.0))


def test_what_a_deleted_file_left_behind_is_no_part_of_the_next(make: Make, path: Path) -> None:
    """A log or journal of the deleted file, which SQLite would replay into the new one, goes when that is made."""
    store = make()
    hold(store)
    for ending in ("-wal", "-journal"):
        if not Path(f"{path}{ending}").exists():
            Path(f"{path}{ending}").write_bytes(b"left over" * 100)
    path.unlink()
    other = make()
    assert step(other.list("", after="", limit=10, timeout=2.0)) == []
    assert isinstance(hold(other, token="other"), Held)
    assert isinstance(hold(make(), token="third"), Contended)


def test_closing_leaves_the_file(make: Make, path: Path) -> None:
    """Leases survive the end of all stores; the library never deletes the file."""
    store = make()
    hold(store)
    step(store.close())
    step(store.close())
    with pytest.raises(StoreNotUsable, match="closed"):
        hold(store)
    assert isinstance(hold(make(), token="other"), Contended)


OPTIONS = Options(BlockingClock())


@pytest.mark.parametrize(
    ("url", "name"),
    [("sqlite:{}/a.db", "a.db"), ("sqlite://{}/b.db", "b.db"), ("sqlite:{}/c%20%3Fd%23.db", "c ?d#.db")],
)
def test_urls_name_files(tmp_path: Path, url: str, name: str) -> None:
    """A path follows the scheme directly or after an empty host, percent-encoded where it must be."""
    store = open_store(url.format(tmp_path), face="blocking", options=OPTIONS)
    step(store.acquire(Claim("key", "token", 30.0), timeout=2.0))
    step(store.close())
    assert (tmp_path / name).exists()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite:", "path"),
        ("sqlite:a.db?mode=ro", "no parameters"),
        ("sqlite:a.db#part", "no parameters"),
        ("sqlite://server/a.db", "server"),
    ],
)
def test_urls_that_mean_nothing_are_refused(url: str, message: str) -> None:
    """What cannot be meant is named in the refusal."""
    with pytest.raises(InvalidRequest, match=message):
        open_store(url, face="blocking", options=OPTIONS)


def test_each_face_gets_a_store_of_its_kind(tmp_path: Path) -> None:
    """Event loops get the store behind a worker thread, on the same locks."""
    url = f"sqlite:{tmp_path}/locks.db"
    blocking, loops = (open_store(url, face=face, options=OPTIONS) for face in ("blocking", "async"))
    assert (blocking.mode, loops.mode) == ("blocking", "async")
    assert isinstance(step(blocking.acquire(Claim("key", "token", 30.0), timeout=2.0)), Held)

    async def try_it() -> Held | Contended:
        try:
            return await loops.acquire(Claim("key", "other", 30.0), timeout=2.0)
        finally:
            await loops.close()

    assert isinstance(asyncio.run(try_it()), Contended)
    step(blocking.close())


def test_the_options_are_heard(tmp_path: Path) -> None:
    """Namespace and clock margin of the options reach the store."""
    options = Options(BlockingClock(), namespace="ours", clock_margin=0.2)
    store = open_store(f"sqlite:{tmp_path}/locks.db", face="blocking", options=options)
    step(store.acquire(Claim("key", "token", 30.0), timeout=2.0))
    assert store.assurance().clock_margin == 0.2
    assert store.assurance().exclusive == "host"
    step(store.close())
    assert rows(tmp_path / "locks.db", "SELECT namespace, key FROM record") == [("ours", "key")]
