"""Programs that the tests of the SQLite store run as processes of their own: `python -m tests.stores.sqlite.programs`.

Each prints what it saw as JSON, one line at a time. They fork rather than start Python anew, which is much faster.
"""

import json
import os
import random
import secrets
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import leased
from leased.clocks import step
from leased.model import Claim, Contended, Held
from leased.stores._sqlite_driver import newer, standard
from leased.stores.sqlite import SqliteStore

warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)


def tell(**found: Any) -> None:
    """Print one line in one piece."""
    os.write(1, f"{json.dumps(found)}\n".encode())


def store_in(path: str, library: str) -> SqliteStore:
    """A store with the library of that name."""
    return SqliteStore(path, library=standard() if library == "sqlite3" else newer())


def in_children(count: int, work: Callable[[int], None]) -> None:
    """Run work in so many forked children and wait for them; whoever fails says why."""
    children = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            try:
                work(number)
                os._exit(0)
            except BaseException:  # noqa: BLE001 - the parent has to hear of it
                tell(failed=traceback.format_exc())
                os._exit(1)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


class Room:
    """A place for one: whoever enters while somebody is inside is counted."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.overlaps = 0

    def __enter__(self) -> None:
        try:
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            self.overlaps += 1

    def __exit__(self, *_: object) -> None:
        Path(self._path).unlink(missing_ok=True)


def count(path: str, processes: str, times: str) -> None:
    """Processes that add one to a number in a file, each time under a lock that they wait for."""
    number = Path(f"{path}.number")
    number.write_text("0")

    def work(_: int) -> None:
        room = Room(f"{path}.room")
        with leased.connect(f"sqlite:{path}") as locks:
            lock = locks.lock("counter", wait="60s")
            for _ in range(int(times)):
                with lock, room:
                    number.write_text(str(int(number.read_text()) + 1))
        tell(overlaps=room.overlaps)

    in_children(int(processes), work)
    tell(number=int(number.read_text()))


def hammer(path: str, library: str, processes: str, seconds: str) -> None:
    """Processes that acquire, renew and release a hundred keys as fast as they can; each tells what it saw."""
    step(store_in(path, library).status("key", timeout=5.0))

    def work(number: int) -> None:
        store = store_in(path, library)
        chance = random.Random(number)
        until, worst, grants, overlaps = time.monotonic() + float(seconds), 0.0, 0, 0
        while time.monotonic() < until:
            key, token = f"key-{chance.randrange(100)}", secrets.token_urlsafe(16)
            began = time.monotonic()
            granted = step(store.acquire(Claim(key, token, 30.0), timeout=20.0))
            worst = max(worst, time.monotonic() - began)
            if isinstance(granted, Held):
                room = Room(f"{path}.{key}")
                with room:
                    assert isinstance(step(store.renew(key, token, ttl=30.0, number=1, timeout=20.0)), Held)
                assert step(store.release(key, token, timeout=20.0))
                grants += 1
                overlaps += room.overlaps
        tell(grants=grants, overlaps=overlaps, worst=worst)

    in_children(int(processes), work)


def work_until_killed(path: str, library: str, seed: str) -> None:
    """One process that does everything there is, with leases of twenty seconds, until somebody kills it."""
    store, chance = store_in(path, library), random.Random(seed)
    tell(ready=True)
    while True:
        key, token = f"key-{chance.randrange(5)}", secrets.token_urlsafe(16)
        step(store.acquire(Claim(key, token, 20.0, owner="same", late=chance.random() < 0.3), timeout=5.0))
        step(store.renew(key, token, ttl=20.0, number=1, timeout=5.0))
        match chance.randrange(4):
            case 0:
                step(store.release(key, token, late=True, timeout=5.0))
            case 1:
                step(store.abandon(key, token, timeout=5.0))
            case 2:
                step(store.force_release(key, timeout=5.0))
            case _:
                pass


def fork_while_working(path: str, library: str) -> None:
    """A process whose threads use the store forks children that use it too, and that end in every way there is."""
    store = store_in(path, library)
    assert isinstance(step(store.acquire(Claim("parent", "its token", 30.0), timeout=5.0)), Held)
    stop = threading.Event()
    failures: list[str] = []

    def busy(name: str) -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            try:
                step(store.acquire(Claim(name, f"{name} {turn}", 30.0), timeout=20.0))
                step(store.release(name, f"{name} {turn}", timeout=20.0))
            except Exception:  # noqa: BLE001 - the test wants to see it
                failures.append(traceback.format_exc())
                return

    def child(number: int) -> None:
        assert isinstance(step(store.acquire(Claim("parent", "other", 30.0), timeout=20.0)), Contended)
        for turn in range(5):
            key, token = f"shared-{turn % 2}", f"{number} {turn}"
            while not isinstance(step(store.acquire(Claim(key, token, 30.0), timeout=20.0)), Held):
                time.sleep(0.001)
            room = Room(f"{path}.{key}")
            with room:
                step(store.renew(key, token, ttl=30.0, number=1, timeout=20.0))
            assert step(store.release(key, token, timeout=20.0))
            assert room.overlaps == 0
        tell(child=number)
        if number % 3 == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if number % 3 == 1:
            sys.exit(0)  # in the middle of the parent's program: the interpreter ends as it always does

    threads = [threading.Thread(target=busy, args=(f"thread-{number}",)) for number in range(2)]
    for thread in threads:
        thread.start()
    children = []
    for number in range(9):
        process = os.fork()
        if process == 0:
            child(number)
            os._exit(0)
        children.append(process)
    ends = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in children]
    stop.set()
    for thread in threads:
        thread.join()
    kept = step(store.renew("parent", "its token", ttl=30.0, number=1, timeout=20.0))
    tell(ends=ends, failures=failures, kept=isinstance(kept, Held))


def fork_with_a_handle(path: str) -> None:
    """A process with a lock that renews itself forks children that exit, crash, and release what they inherited."""
    locks = leased.connect(f"sqlite:{path}")
    handle = locks.lock("key", ttl="1s", renew=True).acquire()
    for end in ("exit", "crash", "release"):
        child = os.fork()
        if child == 0:
            tell(end=end, reason=handle.lost_reason)
            if end == "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            if end == "release":
                tell(released=bool(handle.release()))
            sys.exit(0)
        os.waitpid(child, 0)
    time.sleep(1.5)
    tell(lost=handle.lost, held=locks.lock("key").locked(), released=bool(handle.release()))
    sys.exit(0)


def hold_until_told(path: str) -> None:
    """A process that holds a key for a short lease, and tells what it believes when it is asked."""
    handle = leased.connect(f"sqlite:{path}").lock("key", ttl="0.4s", wait="5s").acquire()
    tell(fencing_token=handle.fencing_token, lost=handle.lost)
    for _ in sys.stdin:
        tell(lost=handle.lost, renewed=bool(handle.renew()), fencing_token=handle.fencing_token)


def show_descriptors(path: str) -> None:
    """What a command started by a process that holds, waits and watches has open of ours."""
    import subprocess

    store = SqliteStore(path)
    step(store.acquire(Claim("key", "token", 30.0), timeout=5.0))
    step(store.watch("key", lambda: None))
    ours = [os.readlink(f"/dev/fd/{number}") for number in os.listdir("/dev/fd") if _is_ours(number, path)]
    listing = subprocess.run(["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, check=True, close_fds=False)
    tell(ours=ours, inherited=[line for line in listing.stdout.splitlines() if path in line])


def _is_ours(number: str, path: str) -> bool:
    try:
        return os.readlink(f"/dev/fd/{number}").startswith(path)
    except OSError:
        return False


def ring(path: str, library: str) -> None:
    """A process that takes and releases the key each time it is told to."""
    store = store_in(path, library)
    tell(ready=True)
    for line in sys.stdin:
        token = line.strip()
        step(store.acquire(Claim("key", token, 30.0), timeout=5.0))
        tell(released=bool(step(store.release("key", token, timeout=5.0))))


def end_at_once(path: str) -> None:
    """A program that uses everything on both faces, closes nothing and ends."""
    import asyncio

    from leased import aio

    held = leased.connect(f"sqlite:{path}").lock("blocking", renew=True).acquire()
    step(SqliteStore(path).watch("blocking", lambda: None))

    async def take() -> int:
        return (await aio.connect(f"sqlite:{path}").lock("async").acquire()).fencing_token

    tell(numbers=[held.fencing_token, asyncio.run(take())])


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
