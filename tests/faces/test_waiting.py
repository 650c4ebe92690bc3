"""Many who wait: the line of one process, what it costs the store, pushes that are lost, crowds at a release."""

import asyncio
import functools
import threading
import time
from itertools import pairwise
from typing import Any

import pytest

import leased
from leased import LockTimeout, StoreNotUsable, StoreUnavailable
from tests.faces.faults import Call
from tests.faces.world import Async, Blocking, World, done


async def test_waiters_of_a_process_are_served_in_order(world: World) -> None:
    """W4, W5: first come, first served, whoever holds the key first."""
    held = await world.occupy("k")
    order: list[int] = []

    async def work(number: int) -> None:
        handle = await done(world.locks.lock("k", wait=60).acquire())
        order.append(number)
        await done(handle.release())

    workers = []
    for number in range(8):
        workers.append(world.start(functools.partial(work, number)))
        await world.waiting("k", number + 1)
    await done(held.release())
    for worker in workers:
        await worker.result()
    assert order == list(range(8))


async def test_a_newcomer_that_waits_joins_the_line_and_a_single_try_does_not(world: World) -> None:
    """W4: a waiting newcomer stands behind those who wait; a single try asks the store at once."""
    held = await world.occupy("k")
    first = world.start(lambda: world.locks.lock("k", wait=60).acquire())
    await world.until(lambda: world.store.asked("acquire") >= 1)
    second = world.start(lambda: world.locks.lock("k", wait=60).acquire())
    await world.waiting("k", 2)
    tokens = {call.token for call in world.store.calls if call.operation == "acquire"}
    assert len(tokens) == 1
    assert await done(world.locks.lock("k").try_acquire()) is None
    await world.until(lambda: world.store.watches)
    await done(held.release())
    handle = await first.result()
    assert not second.over
    await done(handle.release())
    await done((await second.result()).release())


async def test_a_waiter_that_never_reached_the_front_asks_nobody(world: World) -> None:
    """W4: at the end of its wait a waiter in the middle of the line ends without another attempt."""
    held = await world.occupy("k", ttl=3_600)
    front = world.start(lambda: world.locks.lock("k", wait=600).acquire())
    await world.until(lambda: world.store.asked("acquire"))
    behind = world.start(lambda: world.locks.lock("k", wait=30).acquire())
    await world.waiting("k", 2)
    world.move(31)
    with pytest.raises(LockTimeout):
        await behind.result()
    assert len({call.token for call in world.store.calls if call.operation == "acquire"}) == 1
    await done(held.release())
    world.keep(await front.result())


async def test_one_who_gives_up_lets_the_next_one_ask(world: World) -> None:
    """W4, LIVE4: the front leaves the line by time-out; the next takes its place and is granted the key."""
    held = await world.occupy("k", ttl=600)
    front = world.start(lambda: world.locks.lock("k", wait=10).acquire())
    await world.until(lambda: world.store.asked("acquire"))
    behind = world.start(lambda: world.locks.lock("k", wait=300).acquire())
    await world.waiting("k", 2)
    world.move(11)
    with pytest.raises(LockTimeout):
        await front.result()
    await done(held.release())
    await done(world.keep(await behind.result()).release())


async def test_a_release_here_wakes_the_next_without_the_store(world: World) -> None:
    """W3: in one process a release is signalled directly: no push is needed, no nap is slept to its end."""
    world.store.deaf = True
    held = await world.take(world.locks.lock("k"))
    waiter = world.start(lambda: world.locks.lock("k", wait=60, retry_delay=1).acquire())
    await world.until(lambda: world.store.asked("acquire") >= 2)
    await world.until(lambda: world.store.watches)
    started = time.monotonic()
    await done(held.release())
    world.keep(await waiter.result())
    assert time.monotonic() - started < 0.4


async def test_a_push_wakes_the_front(world: World) -> None:
    """W3: a bell of the store wakes the front at once, whoever released the key."""
    held = await world.occupy("k")
    waiter = world.start(lambda: world.locks.lock("k", wait=60, retry_delay=1).acquire())
    await world.until(lambda: world.memory._bells.get("k"))
    asked = world.store.asked("acquire")
    await world.until(lambda: world.store.asked("acquire") >= min(asked, 2))
    started = time.monotonic()
    await done(held.release())
    world.keep(await waiter.result())
    assert time.monotonic() - started < 0.9


async def test_polling_is_enough_when_every_push_is_lost(world: World) -> None:
    """W3, W2: with a deaf store a release elsewhere is noticed within a second, and so is a clock that moved."""
    world.store.deaf = True
    held = await world.occupy("k")
    waiter = world.start(lambda: world.locks.lock("k", wait=60).acquire())
    await world.until(lambda: world.store.asked("acquire") >= 2)
    await done(held.release())
    world.move(1.0)
    world.keep(await waiter.result())


async def test_a_release_between_looking_and_watching_is_not_missed(world: World) -> None:
    """C084, W3: the key is released between the refused attempt and the watch: it is seen at once."""
    held = await world.occupy("k")

    async def release(call: Call) -> None:
        await done(held.release())

    world.store.before("watch", release)
    started = time.monotonic()
    handle = world.keep(await done(world.locks.lock("k", wait=60, retry_delay=1).acquire()))
    assert time.monotonic() - started < 0.5
    assert not handle.lost


@pytest.mark.parametrize("error", [StoreUnavailable("no push today"), StoreNotUsable("it cannot push")])
async def test_a_watch_that_fails_does_not_end_the_wait(world: World, error: leased.LeasedError) -> None:
    """W3: a watch that raises is a lost hint: polling goes on beneath."""
    world.store.fail("watch", error, times=99)
    held = await world.occupy("k")
    waiter = world.start(lambda: world.locks.lock("k", wait=60).acquire())
    await world.until(lambda: world.store.watches)
    await done(held.release())
    world.move(1.0)
    world.keep(await waiter.result())


def test_a_watch_that_hangs_does_not_prolong_the_wait() -> None:
    """W2, C063: a watch that is swallowed holds up neither the wait of a task nor its end."""
    world = World(Async())

    async def main() -> None:
        world.store.hang("watch", past_timeout=True)
        await world.occupy("k")
        started = time.monotonic()
        with pytest.raises(LockTimeout):
            await world.locks.lock("k", wait=0.15).acquire()
        assert time.monotonic() - started < 1.2

    world.run(main)


async def test_a_line_is_watched_once_and_not_after_it_is_empty(world: World) -> None:
    """W4, C180: one watch serves a whole line; it ends with the line, and so does the line itself."""
    held = await world.occupy("k")
    waiters = [world.start(lambda: world.locks.lock("k", wait=60).run(lambda: None)) for _ in range(20)]
    await world.waiting("k", 20)
    await world.until(lambda: world.memory._bells.get("k"))
    assert len(world.memory._bells["k"]) == 1
    await done(held.release())
    for waiter in waiters:
        assert (await waiter.result()).ran
    await world.until(lambda: not world.memory._bells)
    lines = world.locks._client().env.lines
    assert (lines._lines, lines._reserved) == ({}, {})


def test_a_thousand_tasks_cost_the_store_a_bounded_number_of_requests() -> None:
    """W4, C082: a thousand tasks of one process are served in order, at about two requests a pass and no herd."""
    world, number = World(Async()), 1_000
    order: list[int] = []

    async def work(place: int) -> None:
        async with world.locks.lock("k", wait=60):
            order.append(place)

    async def main() -> None:
        held = await world.occupy("k")
        tasks = [asyncio.create_task(work(place)) for place in range(number)]
        await world.waiting("k", number)
        before = world.store.requests
        await held.release()
        await asyncio.gather(*tasks)
        assert order == list(range(number))
        assert world.store.requests - before <= 3 * number + 10

    world.run(main)


def test_hundreds_of_threads_cost_the_store_a_bounded_number_of_requests() -> None:
    """W4, C082: as with tasks: 300 threads, each served once, in the order in which they came."""
    world = World(Blocking())
    number = 300
    order: list[int] = []

    def work(place: int) -> None:
        with world.locks.lock("k", wait=60):
            order.append(place)

    held = world.locks.lock("k").acquire()
    lines = world.locks._client().env.lines
    threads = [threading.Thread(target=work, args=(place,)) for place in range(number)]
    for place, thread in enumerate(threads):
        thread.start()
        while lines.waiting("k") <= place:
            time.sleep(0.0001)
    before = world.store.requests
    held.release()
    for thread in threads:
        thread.join(20)
    assert order == list(range(number))
    assert world.store.requests - before <= 4 * number


def test_a_long_wait_of_many_costs_one_request_a_second() -> None:
    """W4: while a key stays held only the front asks: 200 waiters cost about one request a second."""
    world = World(Async(), flowing=False)

    async def main() -> None:
        await world.occupy("k", ttl=3_600)
        world.store.deaf = True
        tasks = [asyncio.create_task(world.locks.lock("k", wait=100).acquire()) for _ in range(200)]
        await world.waiting("k", 200)
        await world.pass_time(5)
        before = world.store.requests
        await world.pass_time(30)
        assert 29 <= world.store.requests - before <= 30 * 2 + 5
        await world.pass_time(70, step=5)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(result) for result in results} == {LockTimeout}

    world.run(main)


def test_a_crowd_on_many_keys_starves_nobody() -> None:
    """C082: 500 waiters, all started by one event, and 100 hand-overs: attempts are spread, and the first come are
    the first served; nobody overtakes."""
    world = World(Async())
    served: list[int] = []
    done_with = 100

    async def main() -> None:
        start = asyncio.Event()

        async def work(place: int) -> None:
            await start.wait()
            async with world.locks.lock("k", wait=60):
                served.append(place)
                await asyncio.sleep(0)

        tasks = [asyncio.create_task(work(place)) for place in range(500)]
        await asyncio.sleep(0)
        before = world.store.requests
        start.set()
        await world.until(lambda: len(served) >= done_with)
        assert world.store.requests - before <= 4 * len(served) + 10
        assert served == sorted(served)
        await asyncio.gather(*tasks)
        assert len(set(served)) == 500

    world.run(main)


def test_polls_are_jittered() -> None:
    """C082, W3: waiters of different processes do not poll in step: their naps differ."""
    world = World(Async(), flowing=False)

    async def main() -> None:
        await world.occupy("k", ttl=3_600)
        elsewhere = [world.elsewhere() for _ in range(10)]
        for locks in elsewhere:
            locks._client().store.deaf = True
        tasks = [asyncio.create_task(locks.lock("k", wait=20).acquire()) for locks in elsewhere]
        await world.pass_time(10, step=0.01)
        stores = [locks._client().store for locks in elsewhere]
        times = [[call.at for call in store.calls if call.operation == "acquire"] for store in stores]
        naps = [round(later - earlier, 2) for calls in times for earlier, later in pairwise(calls[1:])]
        assert all(0.02 <= nap <= 1.02 for nap in naps)
        assert len(set(naps[-50:])) > 10
        assert max(len(calls) for calls in times) <= 30
        await world.pass_time(15, step=1)
        assert {type(e) for e in await asyncio.gather(*tasks, return_exceptions=True)} == {LockTimeout}

    world.run(main)


async def test_a_local_line_follows_the_stores_truth(world: World) -> None:
    """C198: a thread or task that overran its lease does not keep the next one of its process out."""
    sitter = await world.sit(world.locks.lock("k", ttl=10, renew=False))
    waiter = world.start(lambda: world.locks.lock("k", wait=60).acquire())
    await world.waiting("k")
    world.move(10)
    handle: Any = world.keep(await waiter.result())
    assert not handle.lost
    with pytest.raises(leased.LockLost):
        await sitter.leave()
    assert not handle.lost
