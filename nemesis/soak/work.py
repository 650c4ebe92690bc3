"""The work of a soak: cycles, cancelled waits, lost connections, and a crowd on one key, round after round."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import leased
import leased.aio
from leased.errors import StoreUnavailable
from nemesis.soak.flat import Sample, take
from nemesis.soak.stores import Soaked

AT_ONCE = 100
"""Waits that are cancelled together."""

PATIENCE = 300.0
LEAKS = ("handles", "descriptors", "threads", "tasks")
"""What can be leaked on purpose, at every thousandth part of the work, to see that it is noticed."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much of everything, in a whole run; `waiters` come in every tenth round."""

    cycles: int = 1_000_000
    keys: int = 10_000
    cancellations: int = 100_000
    reconnects: int = 10_000
    waiters: int = 2_000
    rounds: int = 50

    def scaled(self, scale: float) -> Amounts:
        """So many times as much of each."""
        parts = {name: max(self.rounds, int(part * scale)) for name, part in asdict(self).items() if name != "rounds"}
        return replace(self, **parts)


class Soak:
    """One run over one store, by a client of each face."""

    def __init__(self, store: Soaked, amounts: Amounts, *, leak: str = "") -> None:
        self._store = store
        self._amounts = amounts
        self._leak = leak
        self._leaked: list[Any] = []
        self._next = 0

    async def run(self, report: Callable[[Sample], None]) -> list[Sample]:
        """Do all of it; gives a sample from after every round."""
        samples: list[Sample] = []
        async with leased.aio.connect(self._store.url, timeout=20.0) as tasks:
            with leased.connect(self._store.url, timeout=20.0) as threads:
                for number in range(1, self._amounts.rounds + 1):
                    self._cycle(threads)
                    await self._cancel(tasks)
                    self._reconnect(threads)
                    if number % 10 == 1:
                        await self._crowd(tasks)
                    self._plant()
                    share = number / self._amounts.rounds
                    await _calm()
                    server, records = self._store.server, self._store.records()
                    samples.append(take(time.monotonic(), share, server=server, records=records))
                    report(samples[-1])
        return samples

    def _cycle(self, locks: Any) -> None:
        for _ in range(self._amounts.cycles // self._amounts.rounds):
            self._next = (self._next + 1) % self._amounts.keys
            handle = locks.lock(f"key-{self._next}", ttl=30).try_acquire()
            assert handle is not None
            if self._leak == "handles":
                self._leaked.append(handle)
            assert handle.release()

    async def _cancel(self, locks: Any) -> None:
        """Waits end by being cancelled, some before they asked, some while they wait."""
        async with locks.lock("busy", ttl=60, wait=PATIENCE):
            for start in range(0, self._amounts.cancellations // self._amounts.rounds, AT_ONCE):
                count = min(AT_ONCE, self._amounts.cancellations // self._amounts.rounds - start)
                waits = [asyncio.ensure_future(locks.lock("busy").acquire(PATIENCE)) for _ in range(count)]
                await asyncio.sleep(0.001 * (start // AT_ONCE % 10))
                for wait in waits:
                    wait.cancel()
                for outcome in await asyncio.gather(*waits, return_exceptions=True):
                    assert isinstance(outcome, asyncio.CancelledError), outcome

    def _reconnect(self, locks: Any) -> None:
        for number in range(self._amounts.reconnects // self._amounts.rounds):
            if self._store.cut is None:
                with leased.connect(self._store.url, timeout=20.0) as fresh, fresh.lock("again", ttl=30):
                    continue
            self._store.cut()
            handle = None
            until = time.monotonic() + PATIENCE
            while handle is None:
                assert time.monotonic() < until, "the store was not reached again"
                with suppress(StoreUnavailable):
                    handle = locks.lock(f"again-{number}", ttl=30).try_acquire()
            assert handle.release()

    async def _crowd(self, locks: Any) -> None:
        """All wait for one key, and each gets it once."""

        async def wait() -> None:
            handle = await locks.lock("crowded", ttl=30).acquire(PATIENCE)
            await handle.release()

        first = await locks.lock("crowded", ttl=60).acquire(PATIENCE)
        waits = [asyncio.ensure_future(wait()) for _ in range(self._amounts.waiters)]
        await asyncio.sleep(0.1)
        await first.release()
        await asyncio.gather(*waits)

    def _plant(self) -> None:
        if self._leak == "descriptors":
            self._leaked.append(os.open("/dev/null", os.O_RDONLY))
        elif self._leak == "threads":
            thread = threading.Thread(target=threading.Event().wait, daemon=True)
            thread.start()
        elif self._leak == "tasks":
            self._leaked.append(asyncio.ensure_future(asyncio.sleep(3600.0)))


async def _calm() -> None:
    """Let what is ending end: until the number of tasks stands still, for two seconds at the most."""
    before = -1
    for _ in range(20):
        await asyncio.sleep(0.1)
        if before == (before := len(asyncio.all_tasks())):
            return
