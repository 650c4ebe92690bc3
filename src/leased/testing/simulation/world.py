"""One run: a store, a network, clients and their work, built from a seed, and the checks when all is over."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from leased.hold import Hold
from leased.model import Claim
from leased.policy import CLEANUP_BUDGET, REPLAY_WINDOW
from leased.testing.simulation.beliefs import Beliefs
from leased.testing.simulation.client import Client
from leased.testing.simulation.faults import KEYS, RATES, SMALL_STEP, Faults, Restart, Step, draw_faults
from leased.testing.simulation.history import History, Violation
from leased.testing.simulation.network import Network
from leased.testing.simulation.server import Server, ServerClock
from leased.testing.simulation.waits import Waits
from leased.testing.simulation.work import Worker
from leased.timeline import Stuck, Timeline

_STEPS = 60_000
_LONGEST_REST = 30.0
_CLOSING = 3 * CLEANUP_BUDGET
_FORGOTTEN = REPLAY_WINDOW + 30.0


class World:
    """Everything of one run."""

    def __init__(self, seed: int, *, faults: Faults | None = None) -> None:
        self.chance = Random(f"work {seed}")
        self.faults = faults or draw_faults(Random(f"faults {seed}"))
        self.timeline = Timeline(Random(f"order {seed}"))
        self.history = History(self.timeline)
        inside, chance = self.faults.inside, self.chance
        clock = ServerClock(self.timeline, rate=self._rate(), zero=chance.uniform(0.0, 1e5))
        self.server = Server(self.timeline, self.history, clock=clock)
        self.network = Network(self.timeline, self.server, faults=self.faults, chance=Random(f"network {seed}"))
        self.beliefs = Beliefs(self.timeline, self.history, server=self.server, inside=inside)
        self.waits = Waits(
            self.timeline, self.history, server=self.server, inside=inside, notices=not self.faults.lost_notice
        )
        self.server.changed = self._store_changed
        self.clients: list[Client] = []
        self.history.add("run", "faults", self.faults)

    def key(self, chance: Random) -> str:
        """One of the keys of this run."""
        return KEYS[int(chance.random() * self.faults.keys)]

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something later."""
        self.timeline.at(self.timeline.now + seconds, action)

    def hand_over(self, claim: Claim, hold: Hold) -> None:
        """Give a hold to another client (or the same one), which restores it."""
        heirs = [client for client in self.clients if client.alive and not client.stopped]
        if heirs:
            heir = self.chance.choice(heirs)
            given = Claim(hold.key, hold.token, hold.ttl, owner=hold.owner, terms=claim.terms, late=hold.late)
            heir.process.start(Worker(self, heir, chance=self.chance).take_over(given))

    def run(self) -> None:
        """Let it happen, up to the end of all work and its checks, or the first broken promise."""
        for number in range(self.faults.processes):
            self._begin_client(f"p{number}", joined=self.chance.random() < 0.5)
        for restart in self.faults.restarts:
            self.timeline.at(restart.at, lambda restart=restart: self._restart(restart))  # type: ignore[misc]
        for step in self.faults.steps:
            self.timeline.at(step.at, lambda step=step: self._set_clock(step))  # type: ignore[misc]
        try:
            self._let_pass()
        except Stuck as error:
            self.history.break_off("W2", str(error))
        for task in self.timeline.failures:
            self.history.break_off("L14", f"a task of {task.process.name} ended with {task.error!r}")
        self.timeline.close()

    def _let_pass(self) -> None:
        """The faulty time, a quiet time in which all work comes to its end, and the checks of what is left."""
        self.timeline.run(self.faults.length, steps=_STEPS)
        self.network.quiet = True
        self.timeline.run(self.faults.length + _LONGEST_REST, steps=_STEPS)
        for client in self.clients:
            client.stopped = True
            client.keeper.close()
        self.timeline.run(self.timeline.now + _CLOSING, steps=_STEPS)
        if self.history.violation is None:
            self._check_end()

    def _rate(self) -> float:
        return 1.0 + self.chance.uniform(-1.0, 1.0) * RATES[self.faults.bounds]

    def _begin_client(self, name: str, *, joined: bool) -> None:
        """Start a process with a few workers; when it dies, another takes its place some time later."""
        chance = self.chance
        process = self.timeline.process(name, rate=self._rate(), zero=chance.uniform(0.0, 1e5))
        timeout = chance.choice((0.3, 1.0, 2.0, 5.0))
        client = Client(
            process,
            self.network,
            history=self.history,
            chance=chance,
            timeout=timeout,
            joined=joined,
            died=self._replace,
            renews=self.beliefs.renews,
        )
        self.clients.append(client)
        process.after = lambda: self._stepped(client)
        for _ in range(chance.choice(self.faults.workers)):
            process.start(Worker(self, client, chance=chance).run())

    def _replace(self, client: Client) -> None:
        """A process died: start another some time later, which knows nothing of it but the owners it used."""
        self.after(self.chance.uniform(0.02, 3.0), lambda: self._begin_client(f"{client.name}'", joined=False))

    def _stepped(self, client: Client) -> None:
        self.beliefs.after_step(client)
        self.waits.after_step(client)

    def _store_changed(self, key: str) -> None:
        self.beliefs.store_changed(key)
        self.waits.store_changed(key)

    def _restart(self, restart: Restart) -> None:
        self.server.restart(down=restart.down, lost=restart.lost)
        self.waits.store_reset()

    def _set_clock(self, step: Step) -> None:
        self.server.set_clock(step.seconds)
        self.beliefs.clock_stepped(step.seconds, declared=abs(step.seconds) <= SMALL_STEP)
        self.waits.store_reset()

    def _check_end(self) -> None:
        """Nothing is left: no work, no waiter, no record, no mark."""
        for client in self.clients:
            if client.alive and client.process.tasks:
                left = [str(task.work) for task in client.process.tasks]
                self.history.break_off("LIVE10", f"{client.name} still runs {left}")
        self.timeline.run(self.timeline.now + _FORGOTTEN)
        left_over = {client.name: client.left_over() for client in self.clients if client.alive}
        left_over["store"] = self.server.left_over(watches=not self.faults.loses_answers)
        for name, things in left_over.items():
            if things:
                self.history.break_off("LIVE7", f"when all was over {name} still kept {things}")


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one seed."""

    seed: int
    violation: Violation | None
    history: History
    steps: int


def simulate(seed: int, *, faults: Faults | None = None) -> Run:
    """Run one seed from its beginning to its end. Equal seeds give equal histories."""
    world = World(seed, faults=faults)
    collecting = gc.isenabled()
    gc.disable()
    try:
        world.run()
    finally:
        if collecting:
            gc.enable()
    return Run(seed, world.history.violation, world.history, world.timeline.steps)
