"""Plays a scenario: workers at work, servers and workers broken, and then the verdict."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

from nemesis.coverage import WORKERS, counts, missing
from nemesis.fleet import Fleet
from nemesis.history import Recorder, now, read
from nemesis.judge import Verdict, judge
from nemesis.peers import UNJUDGED
from nemesis.stage import Scenario, Stage, broken

CALM = 4.0
"""Seconds before the end from which on no server is broken."""


LOOK_EVERY = 0.2
"""Seconds between two looks whether servers are as they were left."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run. `failed` are workers that did not end well, `missing` what there was too little of."""

    verdict: Verdict
    counts: dict[str, int]
    failed: list[str]
    missing: list[str]

    @property
    def status(self) -> int:
        """0: valid; 1: something was broken; 2: too little happened for either."""
        if self.failed or not self.verdict.valid:
            return 1
        return 2 if self.missing else 0


def play(
    scenario: Scenario,
    *,
    seconds: float,
    seed: str,
    directory: Path,
    bug: str = "",
    peer: str = "",
    python: str = sys.executable,
) -> Outcome:
    """One run of so many seconds. Everything that is drawn follows from the seed; what comes of it does not.

    With a `peer` it is another library's, whose `python` has it: judged by what that can be asked for.
    """
    with (
        scenario.open() as stage,
        Recorder(directory / "nemesis.jsonl", who="nemesis") as recorder,
    ):
        recorder.record("store", kind=urlsplit(stage.url).scheme)
        with Fleet(
            stage.url,
            directory=directory,
            recorder=recorder,
            seconds=seconds,
            chance=Random(f"{seed}/workers"),
            bug=bug,
            peer=peer,
            python=python,
        ) as fleet:
            fleet.start()
            breaking = _Breaking(stage, recorder, until=fleet.until - CALM, chance=Random(f"{seed}/servers"))
            fleet.harass()
            breaking.join()
            fleet.finish()
        recorder.record("end")
    verdict = judge(read(directory), leave_out=UNJUDGED if peer else frozenset())
    found = counts(verdict)
    wanted = {"grants": WORKERS["grants"]} if peer else {**WORKERS, **scenario.gates}
    return Outcome(verdict, found, fleet.failed, missing(found, wanted, seconds=seconds))


class _Breaking:
    """Breaks servers one after the other beside everything else."""

    def __init__(self, stage: Stage, recorder: Recorder, *, until: float, chance: Random) -> None:
        self._stage = stage
        self._recorder = recorder
        self._until = until
        self._chance = chance
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="breaking")
        self._thread.start()

    def join(self) -> None:
        """Wait until all is well again; raises what went wrong in breaking."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _watch(self, until: float) -> None:
        """Break nothing until this time; record what the servers do by themselves meanwhile."""
        well_at = now()
        while (at := now()) < until:
            if self._stage.undisturbed():
                well_at = at
                time.sleep(min(LOOK_EVERY, max(until - now(), 0.0)))
            else:
                with broken(self._recorder, "replaced unordered", loses=True, at=well_at) as fault:
                    self._stage.settle()
                    fault.gone()

    def _run(self) -> None:
        try:
            while self._stage.faults and now() < self._until:
                self._watch(now() + self._chance.uniform(0.5, 4.0))
                if now() < self._until:
                    self._chance.choice(self._stage.faults)(self._recorder, self._chance)
            self._watch(self._until + CALM)
        except BaseException as error:  # noqa: BLE001 (raised by `join`)
            self._error = error
