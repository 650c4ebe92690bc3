"""One client: a process with its line to the store, running the real engine, queue, join and keeper."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from leased.env import Env
from leased.hold import Hold
from leased.join import Joined
from leased.keeper import Keeper
from leased.model import Claim
from leased.policy import FOREVER
from leased.queue import Lines
from leased.store import Store
from leased.testing.simulation.heard import Heard
from leased.testing.simulation.network import Link, Network
from leased.timeline import Process, Task

if TYPE_CHECKING:
    from leased.testing.simulation.history import History
    from leased.testing.simulation.waits import Acquisition


class Client:
    """A process of the run. `awake_since` is when its last pause ended, `paused` how long it has stood still in all.

    Tokens are numbered, so that a seed repeats a run; each belongs to the acquisition whose task minted it.
    """

    def __init__(
        self,
        process: Process,
        network: Network,
        *,
        history: History,
        chance: Random,
        timeout: float,
        joined: bool,
        died: Callable[[Client], None],
        renews: Callable[[Client, str], None],
    ) -> None:
        self.process = process
        self.name = process.name
        self.clock = process.clock
        self.link = Link(network, process, history=history, timeout=timeout)
        self.acquiring: dict[Task, Acquisition] = {}
        self.awake_since = 0.0
        self.paused = 0.0
        self.stopped = False
        self._blocks: dict[tuple[str, str | None], float] = {}  # until when one ran; for ever, while it runs
        self.heard = Heard(
            Joined(self.link, process.clock) if joined else self.link,
            now=lambda: process.timeline.now,
            asks=self._asks,
            renews=lambda token: renews(self, token),
            failed=self._failed,
            waits=self._waits,
        )
        self.store: Store = self.heard
        self.env = Env(process.clock, chance, self.mint, Lines(), timeout=timeout, run_hook=_run_hook)
        self.keeper = Keeper(self.store, self.env)
        self._history = history
        self._network = network
        self._minted = 0
        self._died = died
        process.before = self._draw

    @property
    def alive(self) -> bool:
        """Whether anything of it can still run."""
        return not self.process.killed

    @property
    def calm_since(self) -> float:
        """The instant from which on nothing was wrong with this client, its line or the store."""
        return max(self.awake_since, self.link.troubled_until, self._network.server.down_until)

    def mint(self) -> str:
        """A new token."""
        self._minted += 1
        token = f"{self.name}.{self._minted}"
        task = self.process.timeline.current
        acquisition = self.acquiring.get(task) if task is not None else None
        if acquisition is not None:
            acquisition.tokens.append(token)
        return token

    def keep(self, hold: Hold, *, renewing: bool) -> None:
        """Let the keeper notice this hold's loss, and renew it if asked."""
        if self.keeper.add(hold, renewing=renewing):
            self.clock.start(self.keeper.run())

    def pause(self, seconds: float) -> None:
        """Stand still: nothing of this process runs for so long."""
        now = self.process.timeline.now
        self._history.add(self.name, "pause", f"{seconds:.3f} s")
        self.process.pause(seconds)
        self.paused += seconds
        self.awake_since = max(self.awake_since, now + seconds)

    def kill(self) -> None:
        """Die at once."""
        self._history.add(self.name, "killed")
        self.process.kill()
        self._died(self)

    def local(self, seconds: float) -> float:
        """Real seconds for seconds of this client's clock."""
        return seconds / self.clock.rate

    def left_over(self) -> list[str]:
        """What it still keeps, for the end of a run: it should be nothing."""
        lines, keeper = self.env.lines, self.keeper
        kept = {"line": lines._lines, "reserved owner": lines._reserved, "hold": range(keeper._kept)}
        return [f"a {name}" for name, things in kept.items() if things]

    def block_began(self, hold: Hold) -> None:
        """A block runs under this hold from now on: its owner must not re-take the key from inside."""
        self._blocks[hold.key, hold.owner] = math.inf

    def block_ended(self, hold: Hold) -> None:
        """It runs no more."""
        self._blocks[hold.key, hold.owner] = self.process.timeline.now

    def barred_until(self, claim: Claim) -> float:
        """When the last block of this process under the claim's owner ended; for ever, while one runs."""
        return self._blocks.get((claim.key, claim.owner), 0.0) if claim.owner is not None else 0.0

    def _asks(self, claim: Claim) -> None:
        if self.barred_until(claim) == math.inf:
            self._history.break_off("O1", f"{self.name} asks for {claim.key!r} under the owner of its running block")

    def _waits(self, claim: Claim) -> bool:
        return any(one.wait > 0 and claim.token in one.tokens for one in self.acquiring.values())

    def _failed(self, asked_at: float) -> None:
        if self.calm_since < asked_at:
            self._history.break_off("LIVE4", f"a call of {self.name} got no answer although nothing was wrong")

    def _draw(self) -> None:
        """Before each step: it may be the last, or a long while may pass first."""
        network = self._network
        if network.hits(network.faults.crash):
            self.kill()
        elif network.hits(network.faults.pause):
            self.pause(network.chance.uniform(0.5, 9.0))


def ends_at(started: float, *, wait: float) -> float:
    """When a wait is over; never, for the wait without end."""
    return math.inf if wait == FOREVER else started + wait


def _run_hook(hook: Callable[[], object]) -> None:
    hook()
