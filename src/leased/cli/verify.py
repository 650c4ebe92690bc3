"""`leased verify`: runs the contract checks on a live store and shows what came of each. It judges nothing itself."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from leased.cli.log import log_shown
from leased.cli.output import printable
from leased.cli.session import Session
from leased.cli.streams import write
from leased.targets import hide_secrets

if TYPE_CHECKING:
    from leased.testing import Result

_FAILED = 1


def verify(session: Session) -> int:
    """Run every check, each shown as it ends; 0 if checks were run and none failed."""
    from leased.testing import verify as run_all

    output = session.output

    def show(result: Result) -> None:
        name = result.name.removeprefix("check_")
        if output.json:
            output.lines(
                [
                    {
                        "check": name,
                        "outcome": result.outcome,
                        "promise": result.promise,
                        "message": result.message or None,
                    }
                ]
            )
        elif result.ok:
            write(f"{result.outcome:<8}  {name}\n")
        else:
            write(printable(f"{result.outcome:<8}  {name}: {result.message}") + "\n")
            write(printable(f"{'':<8}  the promise: {result.promise}") + "\n")

    url = session.place().url
    with log_shown(output):
        report = run_all(url, on_result=show)
    count = Counter(result.outcome for result in report.results)
    output.talk(f"{hide_secrets(url)}: {count['passed']} passed, {count['failed']} failed, {count['not run']} not run")
    if not report.ok:
        output.hint("do not trust this store with locks before you know why")
    return 0 if report.ok else _FAILED
