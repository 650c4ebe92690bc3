"""What many who wait cost: threads, connections and wake-ups while nothing happens, commands when they are served."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import leased
from leased import aio
from tests.counts.test_requests import commands
from tests.counts.waiting import waiting
from tests.servers.process import Server
from tests.servers.valkey import client_of
from tests.until import until

ROOT = Path(__file__).parents[2]
WAITERS = 1_000
SECONDS = 2
SELDOM = 0.5
"""Seconds between two looks once a wait goes on."""
PASSES = 200

THREADS = {"tasks": 2, "threads": 2}
"""The main thread, and one that listens for all who wait."""
CONNECTIONS = {"tasks": 2, "threads": 5}
"""One that asks and one that listens; threads may have as many to ask as the pool allows."""
WAKE_UPS = {"tasks": 100, "threads": 2.5 * WAITERS}
"""A second. The one in front asks the store once, the others only look whether it is their turn: once each, since a
wait does not see that the machine was suspended. Tasks do so in a few turns of the loop, threads have to be woken."""


@pytest.fixture
def valkey(private_valkey: Callable[..., Server]) -> Server:
    """One on which nobody else does anything."""
    return private_valkey()


def become_seldom(count: Callable[[], int]) -> None:
    """Return once the looks of a wait have become seldom: it begins with some that follow each other closely, and one
    that has connected a moment ago may not have begun."""
    looks = [(count(), time.monotonic())]

    def seldom() -> bool:
        number = count()
        if number != looks[-1][0]:
            looks.append((number, time.monotonic()))
        return len(looks) > 1 and time.monotonic() - looks[-1][1] > SELDOM

    until(seldom, what="looks have become seldom")


@pytest.mark.real_clock
@pytest.mark.parametrize("face", THREADS)
def test_a_thousand_who_wait_are_nearly_silent(face: str, valkey: Server) -> None:
    """W4, S4: while another process keeps the key, 1,000 waiters of one process need no thread of ours but one that
    listens, a few connections, two looks a second at most, and no more wake-ups than a look each."""
    command = [sys.executable, "-m", "tests.counts.waiting", valkey.url, face, str(WAITERS), str(SECONDS)]
    with (
        leased.connect(valkey.url) as locks,
        locks.lock("wanted", ttl=300),
        client_of(valkey.place) as client,
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program,
    ):
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == "waiting\n"
        become_seldom(lambda: commands(client)["evalsha"])
        before = commands(client)
        program.stdin.write("count\n")
        program.stdin.flush()
        told = json.loads(program.stdout.readline())
        asked = (commands(client) - before)["evalsha"]
        program.kill()
    assert told["threads"] <= THREADS[face], told
    assert told["connections"] <= CONNECTIONS[face], told
    assert told["wake_ups"] <= WAKE_UPS[face], told
    assert asked <= 2 * (SECONDS + 1), asked


def passes_of_threads(url: str, served: Callable[[], Any]) -> None:
    """Threads that wait in a line, let go by a release."""
    with leased.connect(url) as locks:

        def wait() -> None:
            with locks.lock("wanted", wait=120):
                pass

        held = locks.lock("wanted").acquire()
        threads = [threading.Thread(target=wait) for _ in range(PASSES)]
        for thread in threads:
            thread.start()
        until(lambda: waiting(locks) == PASSES)
        served()
        held.release()
        for thread in threads:
            thread.join()
        served()


def passes_of_tasks(url: str, served: Callable[[], Any]) -> None:
    """The same by tasks."""

    async def scene() -> None:
        async with aio.connect(url) as locks:

            async def wait() -> None:
                async with locks.lock("wanted", wait=120):
                    pass

            held = await locks.lock("wanted").acquire()
            tasks = [asyncio.ensure_future(wait()) for _ in range(PASSES)]
            while waiting(locks) < PASSES:
                await asyncio.sleep(0)
            served()
            await held.release()
            await asyncio.gather(*tasks)
            served()

    asyncio.run(scene())


@pytest.mark.parametrize("passes", [passes_of_threads, passes_of_tasks])
def test_a_pass_is_two_calls_however_many_wait(passes: Callable[..., None], valkey: Server) -> None:
    """W4, C082: from one of 200 waiters to the next it takes a release and an acquire, and nobody else asks. Some more
    for the whole line: attempts that were made before its watch stood, and a look a second."""
    seen = []
    with client_of(valkey.place) as client:
        passes(valkey.url, lambda: seen.append(commands(client)))
    done = seen[1] - seen[0]
    assert done["evalsha"] <= 2.2 * PASSES + 10, done
    assert done.total() <= 10 * PASSES, done
