"""While the command runs: passes signals on, watches the lease, ends the command in time. It takes no lease."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import Protocol

from leased.cli.children import Command
from leased.cli.news import News
from leased.cli.output import Output, span
from leased.cli.terminal import Terminal, stop_own_group
from leased.clocks import now

PASSED_ON = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
    signal.SIGTSTP,
)
"""Signals that the command is sent when we are."""

_FROM_TERMINAL = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
"""Stops that concern the whole job. A STOP is meant for the command alone, and so will be the CONT that follows: if we
stopped with it, the command would go on without anybody who renews its lease."""

_LOOK_EVERY = 1.0
"""Seconds between two looks at the lease: after a suspend of the machine a timer that ran before it is late."""

_SWEEP_EVERY = 0.02
"""Seconds between two looks at a group whose leader has ended."""

_DEAD_WITHIN = 1.0
"""Seconds given to processes that were sent KILL before the wrapper goes on without seeing them gone."""

_LEAD = 0.05
"""Seconds (or a twentieth of the ttl, if that is less) before the end of belief at which KILL is sent."""


class Held(Protocol):
    """As much of a handle as is needed here."""

    @property
    def lost(self) -> bool:
        """Whether the lease is over."""
        ...

    def remaining(self) -> float:
        """Seconds for which it may still be believed."""
        ...


@dataclass(frozen=True, slots=True)
class FixedLease:
    """A lease that is over at a fixed instant of the local clock, whatever the store would still allow."""

    granted: Held
    until: float

    @property
    def lost(self) -> bool:
        """Whether it is over."""
        return self.granted.lost or now() >= self.until

    def remaining(self) -> float:
        """Seconds that are left of it."""
        return min(self.granted.remaining(), max(0.0, self.until - now()))


@dataclass(frozen=True, slots=True)
class Ended:
    """How it went: the exit status as shells count it, and the signal that killed it (0 for none). `for_lease`: the
    lease made us end it; `in_time`: it was not over by then; `told`: that signal was one that we had passed on."""

    status: int
    killed_by: int
    for_lease: bool
    in_time: bool
    told: bool


class Supervisor:
    """Runs one command to its end. What leads to what:

    | happening | consequence |
    | --- | --- |
    | a signal for us | passed on to the group; a first TERM starts the grace period, a second one kills |
    | so little of the lease is left that only the grace period fits in | TERM, then KILL before the lease ends |
    | the lease is lost | TERM, then KILL after the grace period |
    | the command ends by itself | done: what it left in the background is its own affair |
    | the command dies of a signal, or was being ended | done when its whole group is gone |
    | the command is stopped at a terminal | we stop as well, as the shell expects, and go on together |
    """

    def __init__(
        self,
        command: Command,
        lease: Held,
        *,
        news: News,
        terminal: Terminal,
        output: Output,
        grace: float,
        ttl: float,
    ) -> None:
        self._command = command
        self._lease = lease
        self._news = news
        self._terminal = terminal
        self._output = output
        self._grace = grace
        self._lead = min(_LEAD, ttl / 20)
        self._passed_on: set[int] = set()
        self._kill_at: float | None = None
        self._killed_at: float | None = None
        self._for_lease = False
        self._halted = False

    def run(self) -> Ended:
        """Wait for the end of the command, whatever has to be done for it."""
        self._news.listen((*PASSED_ON, signal.SIGCONT))
        self._collect()
        while not self._over():
            self._judge()
            for number in self._news.wait(self._until_next_look()):
                self._heard(number)
            self._collect()
        assert self._command.status is not None  # noqa: S101  # `_over` has looked
        code = os.waitstatus_to_exitcode(self._command.status)
        killed_by = max(-code, 0)
        return Ended(
            code if code >= 0 else 128 - code,
            killed_by=killed_by,
            for_lease=self._for_lease,
            in_time=not self._lease.lost,
            told=killed_by in self._passed_on,
        )

    def kill(self) -> None:
        """End the whole group now."""
        self._command.send(signal.SIGKILL)
        if self._killed_at is None:
            self._killed_at = time.monotonic()

    def _over(self) -> bool:
        """Whether the command has ended, and what of its group has to end with it."""
        if self._command.status is None:
            return False
        if self._kill_at is None:
            if not os.WIFSIGNALED(self._command.status):
                return True
            self._end()
        if self._killed_at is not None and time.monotonic() - self._killed_at >= _DEAD_WITHIN:
            return True
        return not self._command.group_lives()

    def _judge(self) -> None:
        """End the command if the lease demands it, and kill it when its time is up."""
        left = self._lease.remaining() - self._lead
        if self._kill_at is None:
            if self._command.status is None and (self._lease.lost or left <= self._grace):
                self._for_lease = True
                self._end()
        elif not self._lease.lost:
            self._kill_at = min(self._kill_at, time.monotonic() + left)
        if self._kill_at is not None and self._killed_at is None and time.monotonic() >= self._kill_at:
            self.kill()

    def _end(self) -> None:
        """Ask the group to end, now; in a grace period from now it will be killed, unless that is due earlier."""
        self._command.send(signal.SIGTERM)
        self._command.send(signal.SIGCONT)  # a stopped process would not notice
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._grace

    def _until_next_look(self) -> float:
        """Seconds until something is due although nothing happens."""
        if self._command.status is not None:
            return _SWEEP_EVERY
        if self._kill_at is None:
            return min(_LOOK_EVERY, self._lease.remaining() - self._lead - self._grace)
        return min(_LOOK_EVERY, self._kill_at - time.monotonic()) if self._killed_at is None else _LOOK_EVERY

    def _heard(self, number: int) -> None:
        """Act on one signal. News from threads need no more than the look at the lease that follows."""
        if number == signal.SIGCONT:
            self._go_on()
        if number not in PASSED_ON:
            return
        if number != signal.SIGTERM:
            self._command.send(number)
            if number == signal.SIGINT and self._halted:
                self._command.send(signal.SIGCONT)  # typed by somebody who looks at a terminal where nothing moves
        elif number not in self._passed_on:
            self._end()
        else:
            self.kill()
        self._passed_on.add(number)

    def _collect(self) -> None:
        """Take note of children that ended or stopped; as process 1 of a container we are given those of others too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid != self._command.pid:
                continue
            if os.WIFSTOPPED(status):
                self._stopped(os.WSTOPSIG(status))
            else:
                self._command.status = status

    def _stopped(self, by: int) -> None:
        """The command was stopped: give it the terminal it asked for, or stop with it until a shell continues us."""
        if by in {signal.SIGTTIN, signal.SIGTTOU} and self._terminal.hand_to(self._command.pid):
            self._command.send(signal.SIGCONT)
        elif by in _FROM_TERMINAL and self._terminal.there and self._kill_at is None:
            had_terminal = self._terminal.take_back(restore_modes=False)
            left = span(self._lease.remaining())
            self._output.talk(f"stopped; the lease ends in {left} unless this goes on before")
            stop_own_group()
            if had_terminal:
                self._terminal.hand_to(self._command.pid)
            self._go_on()
        elif self._terminal.take_back(restore_modes=False):
            self._halted = True
            self._output.talk("the command was stopped from outside and waits for CONT; Ctrl-C ends it")

    def _go_on(self) -> None:
        """Let the command go on, unless its lease ended while we were stopped."""
        self._judge()
        self._command.send(signal.SIGCONT)
