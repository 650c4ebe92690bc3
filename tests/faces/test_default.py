"""The locks of the process that module-level locks use: from the environment, in memory, set and swapped."""

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import leased
import leased.aio
import leased.default
from leased import LockNotAcquired
from tests.faces.clocks import Hands
from tests.faces.world import Face, World, block, done, recorded

LOG = logging.getLogger("leased")


@pytest.fixture
def fresh(face: Face, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of a face in a process that has not made its default yet, and knows no URL."""
    monkeypatch.delenv("LEASED_URL", raising=False)
    face.module.set_default(None)
    yield face.module
    face.module.set_default(None)


def python(*lines: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, with no environment but this."""
    program = "\n".join(lines)
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=20,
        env=environment,
    )


async def test_the_default_comes_from_the_environment(fresh: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """L8: `lock(…)` uses `LEASED_URL`; nothing is said in the log then."""
    url = f"sqlite:{tmp_path}/locks.db"
    monkeypatch.setenv("LEASED_URL", url)
    lock = fresh.lock("k")
    with recorded(LOG, logging.DEBUG) as lines:
        async with block(lock):
            elsewhere = leased.connect(url)
            assert elsewhere.lock("k").try_acquire() is None
            elsewhere.close()
    assert not any("memory" in line for line in lines)
    await done(fresh.get_default().close())


async def test_the_default_is_made_once(fresh: Any) -> None:
    """L8: `get_default` gives the same locks again, and `lock` uses them."""
    locks = fresh.get_default()
    assert fresh.get_default() is locks
    async with block(fresh.lock("only-once")):
        assert await done(locks.lock("only-once").try_acquire()) is None


async def test_a_default_can_be_set_for_recipes_that_exist(fresh: Any, face: Face) -> None:
    """L8: `set_default` counts for later uses of earlier recipes; `None` is as at the start."""
    lock = fresh.lock("k")
    world = World(face)
    fresh.set_default(world.locks)
    assert fresh.get_default() is world.locks
    async with block(lock):
        assert await world.held("k")
    fresh.set_default(None)
    async with block(lock):
        assert not await world.held("k")
    await world.close()


async def test_a_default_can_be_swapped_for_one_block(fresh: Any, face: Face) -> None:
    """L8: `using_default` swaps it inside a block and gives it back, also when the body fails, also nested."""
    one, two = World(face), World(face)
    before = fresh.get_default()
    with fresh.using_default(one.locks) as given:
        assert given is one.locks is fresh.get_default()
        with pytest.raises(ZeroDivisionError), fresh.using_default(two.locks):
            raise ZeroDivisionError(fresh.get_default() is two.locks)
        assert fresh.get_default() is one.locks
    assert fresh.get_default() is before
    await one.close()
    await two.close()


def test_without_a_url_the_log_says_once_that_only_this_process_is_excluded() -> None:
    """L8: both faces use one memory store, and the process says so exactly once, also after the default was reset."""
    ran = python(
        "import asyncio, logging, sys, leased, leased.aio",
        "logging.basicConfig(stream=sys.stdout)",
        "lock = leased.lock('k')",
        "async def main():",
        "    async with leased.aio.lock('k'):",
        "        assert lock.try_acquire() is None",
        "with lock: pass",
        "asyncio.run(main())",
        "leased.set_default(None)",
        "leased.aio.set_default(None)",
        "with lock: pass",
        "asyncio.run(main())",
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    said = ran.stdout.splitlines()
    assert len(said) == 1
    for word in ("LEASED_URL", "memory", "this process only"):
        assert word in said[0]


def test_a_url_of_ones_own_says_nothing() -> None:
    """L8: whoever writes `memory:` knows what it is: nothing is said."""
    ran = python(
        "import logging, sys, leased",
        "logging.basicConfig(stream=sys.stdout)",
        "with leased.connect('memory:').lock('k'): pass",
        "leased.set_default(leased.connect('memory:'))",
        "with leased.lock('k'): pass",
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_nothing_is_made_at_import() -> None:
    """L1, L8: importing and making recipes opens nothing, reads no URL and loads no event loop."""
    ran = python(
        "import sys, leased, threading",
        "lock = leased.lock('k')",
        "assert leased.default._default is None",
        "assert threading.active_count() == 1",
        "assert 'asyncio' not in sys.modules",
        "assert 'sqlite3' not in sys.modules",
        LEASED_URL="nonsense:",
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_bad_url_of_the_environment_is_told_at_first_use() -> None:
    """L8: a `LEASED_URL` that cannot work is an error of its own, never the memory store."""
    ran = python(
        "import leased",
        "try:",
        "    leased.lock('k').try_acquire()",
        "except leased.InvalidRequest as error:",
        "    print(error)",
        LEASED_URL="nonsense:",
    )
    assert ran.returncode == 0
    assert "nonsense" in ran.stdout


async def test_a_test_clock_has_a_memory_store_of_its_own(face: Face) -> None:
    """L8, P5: locks on another clock never meet those of the process, nor those of a third clock."""
    clocks = [face.clock(Hands()) for _ in range(2)]
    everybody = [face.module.connect("memory:"), *(face.module.connect("memory:", clock=clock) for clock in clocks)]
    handles = [await done(locks.lock("own-time").acquire()) for locks in everybody]
    clocks[0].hands.move(31)
    assert [handle.lost for handle in handles] == [False, True, False]
    again = await done(everybody[1].lock("own-time").acquire())
    with pytest.raises(LockNotAcquired):
        await done(everybody[2].lock("own-time").acquire())
    for handle in (*handles, again):
        await done(handle.release())


async def test_locks_on_one_clock_share_its_memory_store(face: Face) -> None:
    """L8: the same URL and the same clock are the same store."""
    clock = face.clock(Hands())
    one, two = (face.module.connect("memory:", clock=clock) for _ in range(2))
    async with block(one.lock("k")):
        assert await done(two.lock("k").try_acquire()) is None
