"""Jobs that run on one of many machines: by hand, and started by APScheduler in several processes at once."""

from __future__ import annotations

import asyncio
import itertools
import logging
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import leased
from leased.contrib.jobs import on_one
from leased.errors import InvalidRequest
from tests.until import until

ROOT = Path(__file__).parents[2]
_numbers = itertools.count()


@pytest.fixture
def url() -> str:
    """A store of this test alone."""
    return f"memory:jobs-{next(_numbers)}"


def test_of_two_that_start_one_runs(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """P4: the other does nothing, says so in the log, and gives `None`; afterwards it runs again."""
    begun, over = threading.Event(), threading.Event()

    @on_one("report", store=url)
    def report(number: int) -> int:
        """Writes the report."""
        begun.set()
        assert over.wait(30)
        return number

    assert (report.__name__, report.__doc__) == ("report", "Writes the report.")
    given: list[int | None] = []
    thread = threading.Thread(target=lambda: given.append(report(1)))
    thread.start()
    assert begun.wait(30)
    with caplog.at_level(logging.INFO, "leased"):
        assert report(2) is None
    assert "'report' runs elsewhere" in caplog.text
    over.set()
    thread.join()
    assert given == [1]
    assert report(3) == 3


def test_async_jobs(url: str) -> None:
    """P4: the same for coroutine functions."""
    ran: list[int] = []

    @on_one("report", store=url)
    async def report(number: int) -> int:
        ran.append(number)
        await asyncio.sleep(0.01)
        return number

    async def main() -> None:
        given = await asyncio.gather(*map(report, range(5)))
        assert [value for value in given if value is not None] == ran

    asyncio.run(main())
    assert len(ran) == 1


def test_a_quick_job_is_not_run_again_by_a_machine_that_is_late(url: str) -> None:
    """L9: `hold_at_least` keeps the key closed after the job has ended."""
    ran: list[int] = []
    job = on_one("report", store=url, hold_at_least=60)(ran.append)
    job(1)
    job(2)
    assert ran == [1]


def test_errors_pass_through(url: str) -> None:
    """A job that fails has run; a store that does not answer lets nothing run."""

    def fail() -> None:
        raise KeyError("x")

    for _ in range(2):
        with pytest.raises(KeyError):
            on_one("report", store=url)(fail)()
    with pytest.raises(leased.StoreUnavailable):
        on_one("report", store="redis://127.0.0.1:1?leased_timeout=0.5")(fail)()


def test_jobs_that_would_run_later_are_refused(url: str) -> None:
    """A generator does its work when somebody iterates, and the lease would be over by then."""

    def generator() -> Iterator[int]:
        yield 1

    async def both() -> AsyncIterator[int]:
        yield 1

    class Report:
        """A job that is an object."""

        async def __call__(self) -> int:
            return leased.current_fencing_token() or 0

    jobs: list[Callable[[], Any]] = [generator, both]
    for job in jobs:
        with pytest.raises(InvalidRequest, match="is a generator"):
            on_one("report", store=url)(job)
    report: Any = Report()
    decorated: Any = on_one("report", store=url)(report)
    token = asyncio.run(decorated())
    assert token > 0


_MACHINE = """
import sys, threading, time
from pathlib import Path
from apscheduler.schedulers.background import BackgroundScheduler
from leased.contrib.jobs import on_one

store, ran, number = sys.argv[1:]

@on_one("tick", store=store, ttl=1.0, hold_at_least=0.5)
def tick():
    with open(ran, "a") as lines:
        lines.write(f"{time.monotonic()} {number}\\n")

scheduler = BackgroundScheduler()
scheduler.add_job(tick, "interval", seconds=0.05, max_instances=1)
scheduler.start()
print("runs", flush=True)
sys.stdin.readline()
scheduler.shutdown()
"""


def test_apscheduler_on_three_machines(tmp_path: Path) -> None:
    """P4: three processes with the same schedule, one of them killed: a job at a time, none sooner than
    `hold_at_least` after the last, and it goes on."""
    ran = tmp_path / "ran"
    ran.touch()
    command = [sys.executable, "-W", "error", "-c", _MACHINE, f"sqlite:{tmp_path / 'locks.db'}", str(ran)]
    machines = [
        subprocess.Popen([*command, str(number)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for number in range(3)
    ]
    try:
        until(lambda: len(ran.read_text().splitlines()) >= 4, what="four runs", seconds=60)
        machines[0].kill()
        before = len(ran.read_text().splitlines())
        until(lambda: len(ran.read_text().splitlines()) >= before + 3, what="three more runs", seconds=60)
    finally:
        for machine in machines:
            machine.kill()
            machine.communicate()
    times = [float(line.split()[0]) for line in ran.read_text().splitlines()]
    assert all(later - earlier > 0.3 for earlier, later in itertools.pairwise(times)), times
