"""What a server store knows of its server from the answers: whether its clock was stepped, and what it really gives."""

from __future__ import annotations

import math
import threading
from dataclasses import replace

from leased.model import UNASKED, Assurance, exclusivity_rank
from leased.observe import report_store
from leased.store import Clock
from leased.targets import Options, check_assurance

STEP = 0.25
"""Seconds by which a server's clock must leave the course of the local one to be reported as stepped."""

_DRIFT = 0.01


class ServerClock:
    """Compares the server's clock, as its answers tell it, with the local one that nobody can set.

    Both have been read around one exchange, so the server's reading lies somewhere within it. What cannot be explained
    by that and by 1 % of different rates is a step.
    """

    def __init__(self, clock: Clock, options: Options, *, shown: str) -> None:
        self._clock = clock
        self._options = options
        self._shown = shown
        self._mutex = threading.Lock()
        self._least = -math.inf  # the server's time less the local one lies between these two
        self._most = math.inf
        self._at = 0.0

    def read(self, server: float, *, asked_at: float) -> None:
        """Take note of an answer that came just now: the server's clock, in seconds, when it handled the question."""
        answered_at = self._clock.now()
        least, most = server - answered_at, server - asked_at
        with self._mutex:
            drift = abs(answered_at - self._at) * _DRIFT
            ahead, behind = least - self._most - drift, self._least - most - drift
            step = ahead if ahead > STEP else -behind if behind > STEP else 0.0
            known = max(self._least - drift, least), min(self._most + drift, most)
            self._least, self._most = known if known[0] <= known[1] else (least, most)
            self._at = answered_at
        if step:
            report_store(self._options.observer, "clock_warning", store=self._shown, data={"step": round(step, 3)})

    def forget(self) -> None:
        """The next answer may come from another server."""
        with self._mutex:
            self._least, self._most = -math.inf, math.inf


_CUT_OFF = (
    "the server had replicas when this process connected before: one that is only cut off can still take over (once "
    "there is none, start the process anew)"
)


class Standing:
    """The assurance of a server store: unknown before the first connection, then as last read.

    A server that lost its replicas does not know whether one of them is about to take over, and looks as one that never
    had any: where replicas were met once, it is never `primary` again.
    """

    def __init__(self, options: Options, *, shown: str) -> None:
        self._options = options
        self._shown = shown
        self._followed = False
        self.assurance = replace(UNASKED, clock_margin=options.clock_margin)

    def read(self, found: Assurance, *, followed: bool = False) -> None:
        """What a new connection says; `followed`: the server has replicas. A change for the worse is an event and a
        line in the log."""
        self._followed = self._followed or followed
        if self._followed and found.exclusive == "primary":
            notes = (*found.notes, _CUT_OFF)
            found = replace(found, exclusive="until-failover", early_loss=True, notes=notes)
        before, self.assurance = self.assurance, replace(found, clock_margin=self._options.clock_margin)
        weaker = exclusivity_rank(found.exclusive) < exclusivity_rank(before.exclusive)
        if before.known and (weaker or (found.early_loss and not before.early_loss)):
            data = {"before": before.exclusive, "now": found.exclusive, "notes": "; ".join(found.notes)}
            report_store(self._options.observer, "assurance_changed", store=self._shown, data=data)

    def check(self) -> None:
        """Before a grant, once connected: raise `StoreNotUsable` if less was read than what `require` asks for."""
        check_assurance(self.assurance, self._options.require, shown_url=self._shown)
