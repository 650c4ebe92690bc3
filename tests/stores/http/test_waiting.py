"""Waiting at a lock service through the public faces: slices, idle limits, clients that die, callers that give up."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import leased
import leased.aio
from leased import LeaseDeadlineExceeded, LockNotAcquired, LockTimeout
from leased.clocks import BlockingClock
from leased.stores.memory import MemoryStore
from tests.server.running import Running, running
from tests.servers.proxy import Proxy
from tests.stores.http.test_faults import Place
from tests.until import until

SOON = 20.0
"""Seconds within which something has to happen that needs no time of its own, on a machine that is busy."""

WAITER = """
import sys, leased
locks = leased.connect(sys.argv[1])
print("waits", flush=True)
locks.lock("key", wait=60, ttl=60).acquire()
print("holds", flush=True)
sys.stdin.read()
"""


def waiting_at(service: Running) -> int:
    """How many claims wait in the lines of the service."""
    return len(service.service.waiting)


def test_a_waiter_gets_the_key_when_it_is_free_and_asks_seldom(
    service: Running, proxy_to: Callable[[Any], Proxy]
) -> None:
    """W3, C165: the service keeps the claim: one request for the whole wait, answered with the release."""
    proxy = proxy_to(Place(service))
    with leased.connect(service.url) as holders, leased.connect(proxy.url) as locks, ThreadPoolExecutor(1) as threads:
        held = holders.lock("key").acquire()
        waiting = threads.submit(lambda: locks.lock("key", wait=SOON, ttl=30).acquire())
        until(lambda: waiting_at(service) == 1)
        asked = proxy.traffic.chunks_up
        time.sleep(1.5)  # what polls would have asked at least twice by now
        assert proxy.traffic.chunks_up == asked
        released_at = time.monotonic()
        assert held.release()
        got = waiting.result(SOON)
        assert time.monotonic() - released_at < 1.0
        assert got.release()


def test_a_wait_goes_on_over_slices() -> None:
    """C165: a service that keeps no claim for long is asked again, until the key is free, or the wait is over."""
    with running(MemoryStore(BlockingClock()), max_wait_slice=0.1) as service, leased.connect(service.url) as locks:
        held = locks.lock("key").acquire()
        with pytest.raises(LockTimeout):
            locks.lock("key", wait=0.5).acquire()
        timer = threading.Timer(0.7, held.release)
        timer.start()
        with locks.lock("key", wait=SOON):
            assert not held.release()
        timer.join()


@pytest.mark.parametrize("ending", ["reset", "close"])
def test_a_wait_goes_on_when_something_cuts_it(service: Running, proxy_to: Callable[[Any], Proxy], ending: Any) -> None:
    """C165: an idle limit in between cuts the connection again and again; the waiter gets the key all the same."""
    proxy = proxy_to(Place(service))
    with leased.connect(service.url) as holders, leased.connect(proxy.url) as locks, ThreadPoolExecutor(1) as threads:
        held = holders.lock("key").acquire()
        waiting = threads.submit(lambda: locks.lock("key", wait=60, ttl=30).acquire())
        for _ in range(3):
            until(lambda: waiting_at(service) == 1 and proxy.traffic.open > 0)
            before = proxy.traffic.connections
            proxy.cut(ending)
            until(lambda before=before: proxy.traffic.connections > before)  # type: ignore[misc]
        assert held.release()
        assert waiting.result(SOON).release()
        assert not holders.status("key").held


def test_nobody_is_granted_for_a_client_that_died(service: Running) -> None:
    """C165, V3: a waiter is killed; when the key is free nothing is left held for it."""
    with leased.connect(service.url) as locks:
        held = locks.lock("key").acquire()
        command = [sys.executable, "-c", WAITER, service.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as waiter:
            until(lambda: waiting_at(service) == 1)
            waiter.send_signal(signal.SIGKILL)
            waiter.wait(SOON)
            assert held.release()
            until(lambda: not locks.status("key").held)
            with locks.lock("key", wait=SOON):
                pass


def test_an_interrupted_wait_ends_at_once_and_leaves_nothing(service: Running) -> None:
    """L12: Ctrl-C ends a wait at the service; the key is free for others when its holder releases."""
    with leased.connect(service.url) as locks:
        held = locks.lock("key").acquire()
        command = [sys.executable, "-c", WAITER, service.url]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with subprocess.Popen(command, text=True, **pipes) as waiter:
            until(lambda: waiting_at(service) == 1)
            waiter.send_signal(signal.SIGINT)
            said = waiter.communicate(timeout=SOON)[1]
            assert "KeyboardInterrupt" in said
        assert held.release()
        until(lambda: not locks.status("key").held)


def test_the_callers_event_ends_a_wait(service: Running) -> None:
    """L4: `cancel=` is looked at while the service keeps the claim, too."""
    with leased.connect(service.url) as holders, leased.connect(service.url) as locks, ThreadPoolExecutor(1) as threads:
        held = holders.lock("key").acquire()
        cancel = threading.Event()
        waiting = threads.submit(lambda: locks.lock("key").acquire(wait=60, cancel=cancel))
        until(lambda: waiting_at(service) == 1)
        cancel.set()
        with pytest.raises(LockNotAcquired, match="gave up"):
            waiting.result(10.0)
        assert held.release()
        until(lambda: not locks.status("key").held)


def test_an_enforced_lease_counts_from_the_asking(service: Running) -> None:
    """H5: what was waited for is a part of a fixed lease, also where the service could keep the claim."""
    with leased.connect(service.url) as holders, leased.connect(service.url) as locks:
        held = holders.lock("key").acquire()
        timer = threading.Timer(1.2, held.release)
        timer.start()
        began = time.monotonic()
        with pytest.raises(LeaseDeadlineExceeded), locks.lock("key", ttl=2, wait=1.9, enforce=True):
            until(lambda: False)
        assert time.monotonic() - began < 2.9
        timer.join()


def test_a_finite_wait_is_over_in_time(service: Running) -> None:
    """W2: neither the service nor this side makes a wait longer than it is."""
    with leased.connect(service.url) as holders, leased.connect(service.url) as locks:
        held = holders.lock("key").acquire()
        for wait in (0.05, 0.3, 1.0):
            began = time.monotonic()
            with pytest.raises(LockTimeout) as caught:
                locks.lock("key", wait=wait).acquire()
            assert wait * 0.9 <= time.monotonic() - began < wait + 1.0
            assert caught.value.holder is not None
        assert held.release()


def test_cancelled_waits_leave_nothing(service: Running) -> None:
    """C001, V3: 200 tasks that wait for one key are cancelled at any moment, some in the instant of their grant."""

    async def scene() -> None:
        async with leased.aio.connect(service.url) as locks:
            for turn in range(40):
                held = await locks.lock("key", ttl=30).acquire()
                clients = [leased.aio.connect(service.url) for _ in range(5)]
                waiting = [asyncio.ensure_future(client.lock("key", wait=SOON, ttl=30).acquire()) for client in clients]
                for _ in range(turn):
                    await asyncio.sleep(0)
                releasing = asyncio.ensure_future(held.release())
                for _ in range(turn % 7):
                    await asyncio.sleep(0)
                for call in waiting:
                    call.cancel()
                for outcome in await asyncio.gather(*waiting, return_exceptions=True):
                    if isinstance(outcome, leased.aio.Handle):
                        assert await outcome.release()
                assert await releasing
                again = await locks.lock("key", wait=SOON, ttl=30).acquire()
                assert await again.release()
                for client in clients:
                    await client.close()

    asyncio.run(scene())


def test_order_is_that_of_coming_also_between_clients(service: Running, proxy_to: Callable[[Any], Proxy]) -> None:
    """W5, V3: the service has one line: clients that know nothing of each other are served as they came."""
    served: list[int] = []
    clients = [leased.connect(proxy_to(Place(service)).url) for _ in range(4)]  # each has a line of its own

    def wait_in_line(number: int) -> None:
        with clients[number].lock("key", wait=SOON, ttl=30):
            served.append(number)

    with leased.connect(service.url) as locks, ThreadPoolExecutor(4) as threads:
        held = locks.lock("key").acquire()
        waiting = []
        for number in range(4):
            waiting.append(threads.submit(wait_in_line, number))
            until(lambda number=number: waiting_at(service) == number + 1)  # type: ignore[misc]
        assert held.release()
        for call in waiting:
            call.result(SOON)
    for client in clients:
        client.close()
    assert served == [0, 1, 2, 3]
