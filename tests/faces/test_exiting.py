"""The end of a program: it ends at once, without a traceback, and says once what it leaves behind."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

BEGIN = """
import asyncio, logging, os, signal, sys, threading, time
import leased, leased.aio
logging.basicConfig(stream=sys.stdout, format="%(message)s")
url = sys.argv[1]
locks = leased.connect(url)
async_locks = leased.aio.connect(url)
"""


def run(program: str, url: str, *, seconds: float = 5.0) -> tuple[int, list[str], str]:
    """Status, lines on standard output, and error output of a program, which must end within so many seconds."""
    started = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", BEGIN + textwrap.dedent(program), url],
        check=False,
        capture_output=True,
        text=True,
        timeout=25,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert time.monotonic() - started < seconds
    return ran.returncode, ran.stdout.splitlines(), ran.stderr


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Each of the stores."""
    return "memory:" if request.param == "memory" else f"sqlite:{tmp_path}/locks.db"


def test_a_lease_left_behind_neither_holds_up_the_end_nor_goes_unsaid(url: str) -> None:
    """C027, L14: the main thread ends with a renewing handle: so does the process, after one line with the key."""
    status, lines, errors = run("handle = locks.lock('left-behind', ttl=30, renew=True).acquire()", url)
    assert (status, errors) == (0, "")
    assert len(lines) == 1
    assert "left-behind" in lines[0]


def test_an_exception_with_a_lease_held_is_the_programs_own(url: str) -> None:
    """C027: a program that dies of its own error shows that error only, and one line of ours."""
    status, lines, errors = run(
        """
        handle = locks.lock("left-behind", ttl=30, renew=True).acquire()
        raise ValueError("mine")
        """,
        url,
    )
    assert status == 1
    assert errors.strip().endswith("ValueError: mine")
    assert errors.count("Traceback") == 1
    assert len(lines) == 1


def test_sys_exit_in_a_block_releases(url: str) -> None:
    """L14, C077: `sys.exit` inside a block leaves it as any exception does: the key is free and nothing is said."""
    status, lines, errors = run(
        """
        try:
            with locks.lock("k"):
                sys.exit(3)
        finally:
            print(locks.status("k").held)
        """,
        url,
    )
    assert (status, lines, errors) == (3, ["False"], "")


def test_many_leases_left_behind_are_one_line(url: str) -> None:
    """L14: a hundred handles left behind are said in one line with their number."""
    status, lines, errors = run("kept = [locks.lock(f'k{n}').acquire() for n in range(100)]", url)
    assert (status, errors, len(lines)) == (0, "", 1)
    assert "100" in lines[0]


def test_what_was_released_or_ran_out_is_not_said(url: str) -> None:
    """L14: only what is held at the end is said."""
    status, lines, errors = run(
        """
        released = locks.lock("a").acquire()
        released.release()
        expired = locks.lock("b", ttl=0.105).acquire()
        with locks.lock("c"):
            pass
        time.sleep(0.12)
        """,
        url,
    )
    assert (status, lines, errors) == (0, [], "")


def test_a_block_of_a_daemon_thread_is_said_too(url: str) -> None:
    """L14: a block that still runs in a daemon thread at the end is a lease left behind."""
    status, lines, errors = run(
        """
        inside = threading.Event()

        def work():
            with locks.lock("in-a-thread"):
                inside.set()
                time.sleep(60)

        threading.Thread(target=work, daemon=True).start()
        inside.wait()
        """,
        url,
    )
    assert (status, errors) == (0, "")
    assert len(lines) == 1
    assert "in-a-thread" in lines[0]


def test_the_end_of_a_loop_with_leases_held_is_quiet(url: str) -> None:
    """L14, C193: a loop ends with a renewing handle and a cancelled block: no traceback, no "never retrieved"."""
    status, lines, errors = run(
        """
        async def main():
            global handle
            handle = await async_locks.lock("left-behind", ttl=30, renew=True).acquire()

            async def sit():
                async with async_locks.lock("in-a-task"):
                    await asyncio.sleep(60)

            asyncio.create_task(sit())
            while not await async_locks.lock("in-a-task").locked():
                await asyncio.sleep(0)

        asyncio.run(main(), debug=True)
        print(locks.status("in-a-task").held)
        """,
        url,
    )
    assert (status, errors) == (0, "")
    assert lines[0] == "False"
    assert len(lines) == 2
    assert "left-behind" in lines[1]


def test_a_hung_store_does_not_hold_up_the_end() -> None:
    """C027, C025: with a renewal that hangs for ever the program still ends at once."""
    status, lines, errors = run(
        """
        from leased.stores.memory import MemoryStore
        from leased.clocks import BlockingClock

        class Hangs(MemoryStore):
            async def renew(self, *args, **kwargs):
                asked.set()
                time.sleep(3600)

        asked = threading.Event()
        handle = leased.connect(Hangs(BlockingClock())).lock("k", ttl=0.5, renew=True).acquire()
        assert asked.wait(5)
        """,
        "memory:",
    )
    assert (status, errors) == (0, "")
    assert len(lines) <= 1


def test_waiting_daemon_threads_end_with_the_program(url: str) -> None:
    """L14: a daemon thread in the middle of a wait does not hold up the end, and raises nothing."""
    status, lines, errors = run(
        """
        held = locks.lock("k").acquire()
        threading.Thread(target=lambda: locks.lock("k", wait=3600).acquire(), daemon=True).start()
        lines = locks._client().env.lines
        while not lines.waiting("k"):
            time.sleep(0.001)
        held.release()
        time.sleep(0.05)
        """,
        url,
    )
    assert (status, errors) == (0, "")
    assert len(lines) <= 1


def test_ctrl_c_ends_a_program_that_waits() -> None:
    """C007, L14: SIGINT while a program waits for a key ends it with the usual traceback only."""
    program = """
        held = locks.lock("k", ttl=60).acquire()
        other = leased.connect(url)
        threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        other.lock("k", wait=60).acquire()
    """
    status, _, errors = run(program, "memory:")
    assert status in (1, 130, -signal.SIGINT)
    assert errors.strip().endswith("KeyboardInterrupt")
    assert errors.count("Traceback") == 1


def test_sigterm_ends_a_program_that_holds_and_the_key_is_free_after_one_ttl(tmp_path: Path) -> None:
    """C095: a program that is told to end and closes its locks is over at once; an unreleased lease ends by itself."""
    url = f"sqlite:{tmp_path}/locks.db"
    status, lines, errors = run(
        """
        def stop(*_):
            locks.close()
            sys.exit(0)

        signal.signal(signal.SIGTERM, stop)
        handle = locks.lock("k", ttl=0.5, renew=True).acquire()
        os.kill(os.getpid(), signal.SIGTERM)
        """,
        url,
    )
    assert (status, errors) == (0, "")
    assert len(lines) <= 1
    check = "handle = locks.lock('k', wait=3).acquire(); handle.release(); print('free')"
    assert run(check, url) == (0, ["free"], "")
