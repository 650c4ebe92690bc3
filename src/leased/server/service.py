"""One lock service: a store with everything that stands before it, opened in the running loop. It knows no HTTP."""

from __future__ import annotations

import random
import secrets
import time
from contextlib import suppress

from leased.aio_clock import LoopClock
from leased.env import Env
from leased.errors import LeasedError
from leased.model import Assurance
from leased.policy import CLEANUP_BUDGET
from leased.server.contention import Contention
from leased.server.events import Events
from leased.server.holds import HoldsKept, OwnHolds
from leased.server.journal import Journal
from leased.server.locks import LockOperations
from leased.server.metrics import Metrics
from leased.server.overview import Overview
from leased.server.policies import Policies
from leased.server.principals import Gate, OpenGate
from leased.server.settings import Settings
from leased.server.troubles import Troubles
from leased.server.waiting import Waiting
from leased.store import Clock, Store
from leased.targets import Options, lines_of, open_store, read_url

_PROBE = "leased-readiness"
_PROBE_TIMEOUT = 1.0
_PROBE_EVERY = 1.0
_PROBE_WRITES = 4


class Service:
    """Made by whoever serves, opened and closed by the app inside the loop. `store`: another one than the URL names.
    `holds`: where the history of keys is kept, if not in memory.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        gate: Gate | None = None,
        clock: Clock | None = None,
        store: Store | None = None,
        holds: HoldsKept | None = None,
    ) -> None:
        """Read the settings and open the store, which opens nothing itself before its first use."""
        self.settings = settings
        self.gate: Gate = OpenGate() if gate is None else gate
        self.clock: Clock = LoopClock() if clock is None else clock
        self._target = read_url(settings.store, Options(self.clock), timeout=settings.timeout)
        self.store: Store = open_store(self._target, face="async") if store is None else store
        self.shown = self._target.shown
        self.policies = Policies(settings)
        self.events = Events(settings)
        self.troubles = Troubles(now=self.clock.now)
        self.env = Env(
            clock=self.clock,
            chance=random.Random(),
            mint=lambda: secrets.token_hex(16),
            lines=lines_of(self._target),
            timeout=settings.timeout,
        )
        self.waiting = Waiting(self.store, self.env, settings)
        self.metrics = Metrics(
            {
                "leased_waiters": ("Claims that wait in the lines of this process.", lambda: len(self.waiting)),
                "leased_event_streams": ("Open streams of events.", lambda: len(self.events)),
            }
        )
        self.journal = Journal(
            settings,
            wall=self.clock.wall,
            metrics=self.metrics,
            overview=Overview(self.waiting.by_project),
            contention=Contention(self.waiting.by_key, since=self.clock.wall()),
            kept=OwnHolds() if holds is None else holds,
        )
        self.locks = self._operations()
        self.draining = False
        self._probed_at = float("-inf")
        self._problem: LeasedError | None = None

    def _operations(self) -> LockOperations:
        return LockOperations(
            self.store,
            self.env,
            gate=self.gate,
            waiting=self.waiting,
            policies=self.policies,
            events=self.events,
            metrics=self.metrics,
            troubles=self.troubles,
            journal=self.journal,
        )

    async def problem(self) -> LeasedError | None:
        """Why no locks can be had now, or `None`; the store is asked at most once a second.

        A store on a full disk, or one that only reads, still answers what is asked. So once somebody was told of a
        failure it has to write as well: that a token which nobody has holds nothing. It has to several times, since on
        a disk that is all but full every second or third write finds some room.
        """
        if time.monotonic() - self._probed_at >= _PROBE_EVERY:
            self._probed_at = time.monotonic()
            doubted, self.troubles.met = self.troubles.met, False
            try:
                await self.gate.check()
                await self.store.status(_PROBE, timeout=_PROBE_TIMEOUT)
                for _ in range(_PROBE_WRITES if doubted else 0):
                    await self.store.abandon(_PROBE, secrets.token_hex(16), timeout=_PROBE_TIMEOUT)
                self._problem = None
            except LeasedError as error:
                self._problem, self.troubles.met = error, True
        return self._problem

    async def assurance(self) -> Assurance:
        """What the store gives; it is asked first if nothing is known of it yet."""
        if not self.store.assurance().known:
            with suppress(LeasedError):
                await self.store.status(_PROBE, timeout=self.settings.timeout)
        return self.store.assurance()

    def drain(self) -> None:
        """Grant nothing any more: waiters are told to ask elsewhere, streams end; leases stay as they are."""
        self.draining = self.locks.draining = True
        self.waiting.drain()
        self.events.end()

    async def close(self) -> None:
        """Close the gate and the store, once what nobody wants any more is handed back, or its time is over."""
        self.drain()
        await self.waiting.settle(min(CLEANUP_BUDGET, self.settings.drain))
        await self.journal.close()
        await self.gate.close()
        await self.store.close()
