"""The registry's file while others have it: nobody waits long, reads go on, nothing happens behind one's back."""

import asyncio
import contextlib
import dataclasses
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from leased.errors import StoreNotUsable, StoreUnavailable
from leased.server import registry_sqlite_lane
from leased.server.access import open_gate
from leased.server.gate import AccessGate
from leased.server.gate_memory import REMEMBERED_FOR
from leased.server.keys import Hasher, new_key
from leased.server.registries import Place, open_registry
from leased.server.registry_sqlite import SqliteRegistry
from leased.server.settings import Settings
from tests.server.access.test_limits import Watch
from tests.server.access.test_registry import credential, line, opened

pytestmark = pytest.mark.real_clock

TIMEOUT = 1.0

_HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN " + sys.argv[2])
connection.execute("SELECT count(*) FROM audit").fetchall()
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.asynccontextmanager
async def held(path: Path, how: str) -> AsyncIterator[None]:
    """Another process has the file meanwhile: `""` reads it, IMMEDIATE is about to write, EXCLUSIVE shuts all out."""
    pipe = asyncio.subprocess.PIPE
    holder = await asyncio.create_subprocess_exec(sys.executable, "-c", _HOLDER, path, how, stdin=pipe, stdout=pipe)
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert await asyncio.wait_for(holder.stdout.readline(), 30.0) == b"held\n"
        yield
    finally:
        holder.stdin.close()
        await holder.wait()


async def soon(ask: Callable[[], Any]) -> Any:
    """What comes of it, once the silence is over."""
    async with asyncio.timeout(30.0):
        while True:
            with contextlib.suppress(StoreUnavailable):
                return await ask()
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def kept(path: Path, *, timeout: float = TIMEOUT) -> AsyncIterator[SqliteRegistry]:
    """A registry with one credential, read and written before."""
    async with opened(path, timeout=timeout) as registry:
        await soon(lambda: registry.add_credential(credential(), line()))
        assert await soon(lambda: registry.credential("0" * 12)) == credential()
        yield registry


async def bearer(registry: SqliteRegistry, hasher: Hasher) -> str:
    """The header of somebody who is in the registry."""
    key = new_key()
    kept = dataclasses.replace(credential(key.id), digest=hasher.digest(key))
    await soon(lambda: registry.add_credential(kept, line()))
    return f"Bearer {key.text}"


@pytest.mark.parametrize("how", ["", "IMMEDIATE"])
async def test_another_process_at_the_file_stops_no_reader(tmp_path: Path, how: str) -> None:
    """S2, LIVE9: renewals only read; while writes cannot end, reads are answered, and all within the time-out."""
    async with kept(tmp_path / "r.db") as registry:
        async with held(tmp_path / "r.db", how):
            began = monotonic()
            writes = [asyncio.create_task(registry.write_audit([line(f"{number}")])) for number in range(20)]
            reads = [asyncio.create_task(registry.credential("0" * 12)) for _ in range(20)]
            assert await asyncio.gather(*reads) == [credential()] * 20
            told = await asyncio.gather(*writes, return_exceptions=True)
            assert monotonic() - began < TIMEOUT + 1.0  # and not 20 times as long
        assert all(isinstance(one, StoreUnavailable) and one.applied is False for one in told)
        assert len(await soon(lambda: registry.audit("p"))) == 1
        await soon(lambda: registry.write_audit([line()]))


async def test_who_is_shut_out_is_told_in_time_and_those_after_him_at_once(tmp_path: Path) -> None:
    """S2: all who ask at once wait together, and then nobody for a second."""
    async with kept(tmp_path / "r.db") as registry:
        async with held(tmp_path / "r.db", "EXCLUSIVE"):
            began = monotonic()
            asked = [*(registry.credential("0" * 12) for _ in range(50)), *(registry.rule_set("p") for _ in range(50))]
            told = await asyncio.gather(*asked, return_exceptions=True)
            waited = monotonic() - began
            assert all(isinstance(one, StoreUnavailable) and not isinstance(one, StoreNotUsable) for one in told)
            assert waited < TIMEOUT + 1.0
            began = monotonic()
            with pytest.raises(StoreUnavailable):
                await registry.credential("0" * 12)
            assert monotonic() - began < TIMEOUT / 2
        assert await soon(lambda: registry.credential("0" * 12)) == credential()


async def test_a_file_that_is_silent_lets_in_who_is_known_and_nobody_else(tmp_path: Path) -> None:
    """A2, S2: what is remembered needs no file, and is used while the grace lasts; a stranger is refused."""
    hasher, watch = Hasher(b"p" * 32), Watch()
    async with kept(tmp_path / "r.db") as registry:
        gate = AccessGate(registry, hasher=hasher, wall=lambda: 1000.0, now=watch, grace=60.0)
        known, stranger = await bearer(registry, hasher), await bearer(registry, hasher)
        ada = await gate.identify(known, peer="127.0.0.1")
        async with held(tmp_path / "r.db", "EXCLUSIVE"):
            began = monotonic()
            assert await gate.identify(known, peer="127.0.0.1") == ada
            assert monotonic() - began < TIMEOUT / 2
            with pytest.raises(StoreUnavailable):
                await gate.identify(stranger, peer="127.0.0.1")
            watch.time += REMEMBERED_FOR
            began = monotonic()
            assert await asyncio.gather(*(gate.identify(known, peer="127.0.0.1") for _ in range(20))) == [ada] * 20
            assert monotonic() - began < TIMEOUT + 1.0
            watch.time += 60.0
            with pytest.raises(StoreUnavailable):
                await gate.identify(known, peer="127.0.0.1")
        await soon(lambda: gate.identify(stranger, peer="127.0.0.1"))


def change(path: Path, how: str) -> None:
    """What a mistaken hand, or a restore beside a running service, does to the file."""
    if how == "replaced":
        copy = path.with_name("restored")
        copy.write_bytes(path.read_bytes())
        copy.rename(path)
    elif how == "moved":
        path.rename(path.with_name("moved"))
    else:
        path.unlink()


@pytest.mark.parametrize("how", ["replaced", "moved", "deleted"])
@pytest.mark.parametrize("written", [True, False], ids=["used", "only read"])
async def test_a_file_that_is_gone_is_noticed_by_all_and_never_made_anew(
    tmp_path: Path, how: str, *, written: bool
) -> None:
    """V5, A2, A5: nothing is answered from a file that nobody can reach any more, nor written into it, nor into a new
    and empty one; the service is not ready, and nobody is let in, not even who was known a moment ago."""
    path, hasher, watch = tmp_path / "r.db", Hasher(b"p" * 32), Watch()
    async with kept(path) as registry:
        known = await bearer(registry, hasher)
    async with opened(path) as registry:
        if written:
            await soon(lambda: registry.write_audit([line()]))
        gate = AccessGate(registry, hasher=hasher, wall=lambda: 1000.0, now=watch, grace=60.0)
        await soon(lambda: gate.identify(known, peer="127.0.0.1"))
        await gate.check()
        change(path, how)
        watch.time += REMEMBERED_FOR
        for asked in (
            lambda: registry.revoke(credential(), line()),
            lambda: registry.add_credential(credential("1" * 12), line()),
            lambda: registry.rule_set("p"),
            lambda: gate.identify(known, peer="127.0.0.1"),
            gate.check,
        ):
            with pytest.raises(StoreNotUsable, match="deleted or replaced while it was in use"):
                await asked()
        assert path.exists() == (how == "replaced")
        if how == "moved":
            path.with_name("moved").rename(path)
            await gate.check()


async def test_what_is_written_as_the_file_goes_was_not_written(tmp_path: Path) -> None:
    """A5: the file is replaced while a change is on its way to the disk: nobody is told that it is done."""
    path = tmp_path / "r.db"
    async with kept(path) as registry:
        lane = registry._writes

        def work(connection: sqlite3.Connection) -> None:
            change(path, "replaced")

        with pytest.raises(StoreNotUsable, match="deleted or replaced"):
            await lane.run(work)


async def test_many_writes_at_once_are_one_write_to_the_disk(tmp_path: Path) -> None:
    """LIVE9: more callers than there is time for commits are all served; one whose work fails spoils no other."""
    async with kept(tmp_path / "r.db", timeout=10.0) as registry:
        commits: list[str] = []
        connection = registry._writes._connection
        assert connection is not None
        connection.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
        ids = [f"{number:012}" for number in range(500)]  # the first one is there already
        told = await asyncio.gather(
            *(registry.add_credential(credential(one), line()) for one in ids), return_exceptions=True
        )
        assert isinstance(told[0], StoreNotUsable)
        assert told[1:] == [None] * 499
        assert len(commits) < 20
        assert len(await registry.credentials("p")) == len(await registry.audit("p")) == 500


async def test_a_write_that_began_may_have_happened_and_one_that_did_not_never_does(tmp_path: Path) -> None:
    """S2: the one that the disk holds up is told as unsure; the one behind it is dropped; reads go on."""
    registry = SqliteRegistry(str(tmp_path / "r.db"), timeout=TIMEOUT)
    await soon(lambda: registry.write_audit([line("first")]))
    go, running = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold_up(connection: sqlite3.Connection) -> None:
        loop.call_soon_threadsafe(running.set)
        go.wait(30.0)

    held_up = asyncio.create_task(registry._write(hold_up))
    await running.wait()
    behind = asyncio.create_task(registry.write_audit([line("behind")]))
    assert await asyncio.wait_for(registry.audit("p"), 10.0)
    with pytest.raises(StoreUnavailable) as unsure:
        await held_up
    with pytest.raises(StoreUnavailable) as never:
        await behind
    assert (unsure.value.applied, never.value.applied) == (None, False)
    with pytest.raises(StoreUnavailable):
        await registry.write_audit([line("told at once")])
    go.set()
    await registry.close()
    async with opened(tmp_path / "r.db") as again:
        assert [one.action for one in await again.audit("p")] == ["first"]


async def test_closing_waits_for_no_disk(tmp_path: Path) -> None:
    """11: a service can end while its registry is stuck."""
    registry = SqliteRegistry(str(tmp_path / "r.db"), timeout=TIMEOUT)
    go = threading.Event()
    stuck = asyncio.create_task(registry._write(lambda _: go.wait(30.0)))
    with pytest.raises(StoreUnavailable):
        await stuck
    await asyncio.wait_for(registry.close(), 10.0)
    go.set()


async def test_the_queue_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C180: whoever comes when too many wait is told to come again."""
    monkeypatch.setattr(registry_sqlite_lane, "MAX_QUEUED", 5)
    async with kept(tmp_path / "r.db", timeout=10.0) as registry:
        go, running = threading.Event(), threading.Event()

        def hold_up(connection: sqlite3.Connection) -> None:
            running.set()
            go.wait(30.0)

        first = asyncio.create_task(registry._write(hold_up))
        await asyncio.to_thread(running.wait, 30.0)
        waiting = [asyncio.create_task(registry.write_audit([line()])) for _ in range(9)]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert done
        go.set()
        told = await asyncio.gather(*waiting, return_exceptions=True)
        await first
        assert [one is None for one in told] == [True] * 5 + [False] * 4
        assert len(await registry.audit("p")) == 6


async def test_the_setting_reaches_the_registry(tmp_path: Path) -> None:
    """11: `registry_timeout` is how long a call may take here, too."""
    opened_here = open_registry(Place(str(tmp_path / "r.db")), begin=True, timeout=0.25)
    gate = open_gate(Settings(registry=str(tmp_path / "r.db"), registry_timeout=0.75))
    for registry, timeout in ((opened_here.registry, 0.25), (gate.registry, 0.75)):
        assert isinstance(registry, SqliteRegistry)
        assert registry._reads._timeout == registry._writes._timeout == timeout
        await registry.close()


async def test_the_lock_of_one_connection_outlives_the_opening_of_another(tmp_path: Path) -> None:
    """S2: the second connection to the same file does not undo the locks of the first, as a closed descriptor would."""
    async with kept(tmp_path / "r.db", timeout=10.0) as one, opened(tmp_path / "r.db", timeout=TIMEOUT) as two:
        reached = asyncio.Event()
        go = threading.Event()
        loop = asyncio.get_running_loop()

        def hold(connection: sqlite3.Connection) -> None:
            connection.execute("UPDATE rule_sets SET name = ''")
            loop.call_soon_threadsafe(reached.set)
            go.wait(30.0)

        writing = asyncio.create_task(one._write(hold))
        await reached.wait()
        with pytest.raises(StoreUnavailable):
            await two.write_audit([line()])
        go.set()
        await writing
