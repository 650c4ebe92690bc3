"""Runs checks in places and gives what came of it as values; it knows neither pytest nor any store."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from leased.errors import InvalidRequest
from leased.testing.contract import CHECKS, Check
from leased.testing.live import live
from leased.testing.worlds import Blocking, Face, NotRunHere, Place

if TYPE_CHECKING:
    from leased.sync import Locks

_TIMEOUT = 5.0


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


def run_checks(
    place: Place, *, checks: Iterable[Check] = CHECKS, on_result: Callable[[Result], None] | None = None
) -> Report:
    """Run checks one after the other, each in a world of its own; `on_result` is told of each as it ends."""
    results: list[Result] = []
    for check in checks:
        results.append(run_check(check, place))
        if on_result:
            on_result(results[-1])
    return Report(str(place), tuple(results))


def verify(
    where: str | Locks, *, face: Face | None = None, on_result: Callable[[Result], None] | None = None
) -> Report:
    """Run all checks on a running store, in a namespace of their own, and leave nothing behind; takes some seconds.

    What needs more time than anybody would wait for is "not run". `where` is a URL, or `Locks` that were connected to
    one. `face` is `Blocking()` unless given. Raises a `LeasedError` if the store cannot be used or does not answer.
    """
    from leased.client import make_target
    from leased.clocks import BlockingClock

    if isinstance(where, str):
        target = make_target(where, clock=BlockingClock(), observer=None, given={})
    elif where._store is None:
        target = where._target
    else:
        raise InvalidRequest(
            "a store object cannot be verified like a running store",
            hint="use run_checks(Place(...)), see leased.testing",
        )
    place = live(target, face or Blocking())
    with closing(place.face.driver()) as driver:
        driver.run(_answers(place))
    return run_checks(place, on_result=on_result)


async def _answers(place: Place) -> None:
    world = place.open()
    try:
        await world.store.status(world.fresh_key(), timeout=_TIMEOUT)
    finally:
        await world.close()


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
