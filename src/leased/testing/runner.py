"""Runs checks in places and says what came of it as values; it knows neither pytest nor any store."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Literal

from leased.testing.contract import CHECKS, Check
from leased.testing.worlds import NotRunHere, Place


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one check in one place. `promise` is the property, `message` why it failed or was not run."""

    name: str
    promise: str
    outcome: Literal["passed", "failed", "not run"]
    message: str = ""
    error: Exception | None = field(default=None, compare=False, repr=False)

    @property
    def ok(self) -> bool:
        """Whether nothing speaks against the store."""
        return self.outcome != "failed"


@dataclass(frozen=True, slots=True)
class Report:
    """What came of all checks in one place."""

    place: str
    results: tuple[Result, ...]

    @property
    def ok(self) -> bool:
        """Whether checks were run and none failed."""
        return any(result.outcome == "passed" for result in self.results) and all(result.ok for result in self.results)


def run_check(check: Check, place: Place) -> Result:
    """Run one check in a new world; an error of any kind that leaves it is a failure of the store."""
    name, promise = check.__name__, _promise(check)
    try:
        with closing(place.face.driver()) as driver:
            driver.run(_alone(check, place))
    except NotRunHere as reason:
        return Result(name, promise, "not run", str(reason))
    except Exception as error:  # noqa: BLE001 - whatever a store raises belongs into the report
        return Result(name, promise, "failed", _message(error), error)
    return Result(name, promise, "passed")


def run_checks(place: Place, *, checks: Iterable[Check] = CHECKS) -> Report:
    """Run checks one after the other, each in a world of its own."""
    return Report(str(place), tuple(run_check(check, place) for check in checks))


async def _alone(check: Check, place: Place) -> None:
    world = place.open()
    try:
        if world.move is None and getattr(check, "moves_time", False):
            raise NotRunHere("it needs a clock that can be moved")
        await check(world)
    finally:
        await world.close()


def _promise(check: Check) -> str:
    return " ".join(inspect.cleandoc(check.__doc__ or "").split())


def _message(error: Exception) -> str:
    """What happened and in which line of the check, on one line."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.name.startswith("check_")]
    where = f" (line {frames[-1].lineno} of the check: {frames[-1].line})" if frames else ""
    what = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
    return f"{what}{where}"
