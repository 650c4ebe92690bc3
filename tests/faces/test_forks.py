"""Forked children: they hold nothing, renew nothing, free nothing of their parent's, and begin anew."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

BEGIN = """
import os, sys, time, threading, logging, signal
import leased

signal.alarm(20)
locks = leased.connect(sys.argv[1])

def child(work):
    '''Run work in a forked child; its exit status says whether it went well.'''
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
"""


def run(program: str, url: str) -> str:
    """What a program of its own process prints; it must end well and say nothing on its error output."""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", BEGIN + textwrap.dedent(program), url],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Each of the stores."""
    return "memory:" if request.param == "memory" else f"sqlite:{tmp_path}/locks.db"


@pytest.mark.parametrize("ending", ["os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)", "inherited.release()"])
def test_a_child_never_frees_its_parents_lock(url: str, ending: str) -> None:
    """C012: the child exits, crashes, or calls release on the inherited handle: the parent's hold is untouched."""
    run(
        f"""
        inherited = locks.lock("k", ttl=30, renew=True).acquire()
        pid = os.fork()
        if pid == 0:
            try:
                {ending}
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        assert not inherited.lost
        assert inherited.renew()
        assert locks.status("k").held
        assert inherited.release()
        locks.close()
        """,
        url,
    )


def test_an_inherited_handle_is_inert_and_says_so(url: str) -> None:
    """C012, L13, H2: in the child the handle is lost as `forked`; nothing that it is asked reaches the store."""
    run(
        """
        handle = locks.lock("k", ttl=30, renew=True).acquire()
        handle.on_lost(lambda: os._exit(9))

        def work():
            told = threading.Event()
            handle.on_lost(told.set)
            assert told.wait(5)
            assert (handle.lost, handle.lost_reason, handle.remaining()) == (True, "forked", 0)
            assert handle.release().reason == "not_holder"
            outcome = handle.renew()
            assert (bool(outcome), outcome.lost_reason) == (False, "forked")
            assert "forked" in repr(handle)
            for refused in (handle.ensure_held, handle.hand_over, handle.__enter__):
                try:
                    refused()
                except leased.LockLost as error:
                    assert error.reason == "forked"
                else:
                    raise AssertionError(refused)

        child(work)
        assert handle.renew()
        assert handle.release()
        locks.close()
        """,
        url,
    )


def test_a_child_inside_a_block_leaves_it_without_effect(url: str) -> None:
    """C012, L13: a child forked inside `with lock:` that leaves the block raises `LockLost` and frees nothing; it is no
    deadlock for the child to wait for the key."""
    run(
        """
        lock = locks.lock("k", ttl=30, owner="o")
        pid = None
        try:
            with lock as held:
                pid = os.fork()
                if pid == 0:
                    assert held.lost_reason == "forked"
                    assert leased.current() is held
                    if sys.argv[1] != "memory:":
                        try:
                            locks.lock("k", wait=0.05).acquire()
                        except leased.LockTimeout:
                            pass
                        else:
                            os._exit(3)
                else:
                    _, status = os.waitpid(pid, 0)
                    assert os.waitstatus_to_exitcode(status) == 7, status
                    assert held.renew()
                    assert locks.status("k").held
        except leased.LockLost as error:
            assert (pid, error.reason) == (0, "forked")
            os._exit(7)
        assert not locks.status("k").held
        locks.close()
        """,
        url,
    )


def test_a_child_can_acquire_on_its_own(url: str) -> None:
    """L13: the child opens its own connection, holds, renews and waits by itself, and excludes its parent where the
    store is shared."""
    run(
        """
        locks.lock("warm").try_acquire().release()
        shared = sys.argv[1] != "memory:"
        held = locks.lock("parents", ttl=30).acquire()

        def work():
            mine = locks.lock("parents").try_acquire()
            assert (mine is None) == shared
            if mine is not None:
                mine.release()
            with locks.lock("childs", ttl=0.4) as mine:
                time.sleep(0.5)
                assert not mine.lost
            waiting = locks.lock("line", wait=5).acquire()
            waiting.release()

        child(work)
        assert held.renew()
        held.release()
        with locks.lock("childs", wait=5):
            pass
        locks.close()
        """,
        url,
    )


def test_locks_held_by_other_threads_at_the_fork_hang_no_child(url: str) -> None:
    """L13: mutexes that other threads hold while this one forks are new in the child: nothing hangs there."""
    run(
        """
        handle = locks.lock("k", ttl=30, renew=True, owner="o").acquire()
        client = locks._client()
        keeper = handle._hold.keeper
        mutexes = [keeper._mutex, client.env.lines._mutex, handle._hold._mutex, locks._opening._mutex]
        store = getattr(client.store, "_store", client.store)
        mutexes += [value for name, value in vars(store).items() if name == "_mutex"]
        taken, done = threading.Event(), threading.Event()

        def take():
            for mutex in mutexes:
                mutex.acquire()
            taken.set()
            done.wait()
            for mutex in reversed(mutexes):
                mutex.release()

        thread = threading.Thread(target=take)
        thread.start()
        taken.wait()

        def work():
            assert handle.lost_reason == "forked"
            assert handle.release().reason == "not_holder"
            assert not handle.renew()
            handle.on_lost(lambda: None)
            with locks.lock("other", owner="o", wait=1) as mine:
                assert mine.renew()

        try:
            child(work)
        finally:
            done.set()
            thread.join()
        assert handle.release()
        locks.close()
        """,
        url,
    )


def test_parents_and_children_exclude_each_other(tmp_path: Path) -> None:
    """C130: a store object made before the fork is used by parent and children in any order: the count is right."""
    run(
        """
        from pathlib import Path
        counter = Path(sys.argv[1].partition(":")[2] + ".count")
        counter.write_text("0")
        lock = locks.lock("count", wait=15, ttl=15)

        def work():
            for _ in range(12):
                with lock:
                    seen = int(counter.read_text())
                    time.sleep(0.0005)
                    counter.write_text(str(seen + 1))

        work()
        children = []
        for _ in range(4):
            pid = os.fork()
            if pid == 0:
                try:
                    work()
                    os._exit(0)
                finally:
                    os._exit(1)
            children.append(pid)
        work()
        for pid in children:
            assert os.waitpid(pid, 0)[1] == 0
        assert counter.read_text() == str(12 * 6)
        locks.close()
        """,
        f"sqlite:{tmp_path}/locks.db",
    )


def test_waiters_of_the_parent_are_not_in_the_childs_line(url: str) -> None:
    """L13: queues are new in the child: a waiter of the parent neither blocks nor is woken there."""
    run(
        """
        held = locks.lock("k", ttl=30).acquire()
        waiter = threading.Thread(target=lambda: locks.lock("k", wait=15).acquire().release())
        waiter.start()
        lines = locks._client().env.lines
        while not lines.waiting("k"):
            time.sleep(0.001)

        def work():
            assert locks._client().env.lines.waiting("k") == 0
            if sys.argv[1] == "memory:":
                locks.lock("k", wait=5).acquire().release()

        child(work)
        held.release()
        waiter.join(10)
        assert not waiter.is_alive()
        locks.close()
        """,
        url,
    )


def test_the_asyncio_face_begins_anew_too(url: str) -> None:
    """L13: a child that runs a loop of its own acquires, waits and renews; the parent's hold is untouched."""
    run(
        """
        import asyncio
        import leased.aio

        async_locks = leased.aio.connect(sys.argv[1])

        async def use(key):
            async with async_locks.lock(key, wait=5, ttl=5) as held:
                await held.renew()
                await asyncio.sleep(0.01)

        async def main():
            handle = await async_locks.lock("k", ttl=30, renew=True).acquire()
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    assert handle.lost_reason == "forked"
                    asyncio._set_running_loop(None)
                    asyncio.run(use("childs"))
                    status = 0
                finally:
                    os._exit(status)
            assert os.waitpid(pid, 0)[1] == 0
            assert await handle.renew()
            assert await handle.release()
            await async_locks.close()

        asyncio.run(main())
        """,
        url,
    )


def test_a_fork_while_another_thread_makes_the_default(tmp_path: Path) -> None:
    """L13: nothing of a thread that the child does not have keeps it from its own default, on either face."""
    run(
        """
        from leased import aio, default

        os.environ["LEASED_URL"] = sys.argv[1]
        for face, mutex in ((leased, default._mutex), (aio, aio._default_mutex)):
            taken, go_on = threading.Event(), threading.Event()

            def make():
                with mutex:
                    taken.set()
                    go_on.wait()

            maker = threading.Thread(target=make)
            maker.start()
            taken.wait()
            child(lambda: face.get_default())
            go_on.set()
            maker.join()
        """,
        f"sqlite:{tmp_path}/locks.db",
    )
