"""How the library speaks: only in errors that are documented, and of clocks only when one was set."""

from __future__ import annotations

from collections.abc import Iterator

from nemesis.checks.violation import Violation
from nemesis.excuses import Excuses
from nemesis.run import NEVER, Run

NOTICED = 1.02
"""A clock that runs faster than this is beyond the margin of holders."""

ERRORS = {
    "acquire": {"LockNotAcquired", "LockTimeout", "StoreUnavailable", "GaveUp"},
    "renew": {"StoreUnavailable"},
    "release": {"StoreUnavailable"},
    "leave": {"LockLost"},
    "abandon": {"StoreUnavailable"},
    "status": {"StoreUnavailable"},
    "force": {"StoreUnavailable"},
}
"""What each call may raise; `StoreNotUsable` is for what will not pass, and everything that a run breaks does."""


def documented_errors(run: Run, excuses: Excuses) -> Iterator[Violation]:
    """A call raises what its documentation names, and nothing else."""
    for call in run.calls:
        error = call.found.get("error")
        if error is None or error in ERRORS.get(call.call, ()):
            continue
        if error == "CancelledError" and call.hold:
            continue  # the body of a block that was stopped because its lease was lost
        text = f"{call.key!r}: {call.call} {call.op} raised {error}: {call.found.get('message')}"
        yield Violation("errors", call.answered, text)


def clock_warnings(run: Run, excuses: Excuses) -> Iterator[Violation]:
    """No clock is called stepped that was not."""
    moved = min((one.began for one in run.faults if one.step or one.rate > NOTICED), default=NEVER)
    for line in run.told:
        if line.data["event"] == "clock_warning" and line.at < moved:
            yield Violation("clock", line.at, f"{line.who} was told that a clock was stepped: {line.data}")
