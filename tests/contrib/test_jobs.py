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


_MACHINES = {
    "blocking": """
import sys
import leased
from apscheduler.schedulers.background import BackgroundScheduler
from leased.contrib.jobs import on_one

store, ran, number = sys.argv[1:]

@on_one("tick", store=store, ttl=1.0, hold_at_least=0.5)
def tick():
    with open(ran, "a") as lines:
        lines.write(f"{leased.current_fencing_token()} {number}\\n")

scheduler = BackgroundScheduler()
scheduler.add_job(tick, "interval", seconds=0.05, max_instances=1)
scheduler.start()
print("runs", flush=True)
sys.stdin.readline()
scheduler.shutdown()
""",
    "async": """
import asyncio, sys
import leased
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from leased import aio
from leased.contrib.jobs import on_one

store, ran, number = sys.argv[1:]

async def main():
    async with aio.connect(store) as locks:

        @on_one("tick", store=locks, ttl=1.0, hold_at_least=0.5)
        async def tick():
            await asyncio.sleep(0.01)
            with open(ran, "a") as lines:
                lines.write(f"{leased.current_fencing_token()} {number}\\n")

        scheduler = AsyncIOScheduler()
        scheduler.add_job(tick, "interval", seconds=0.05, max_instances=1)
        scheduler.start()
        print("runs", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        scheduler.shutdown()

asyncio.run(main())
""",
}


@pytest.mark.parametrize("kind", _MACHINES)
def test_apscheduler_on_three_machines(tmp_path: Path, kind: str) -> None:
    """P4: three processes with the same schedule, one of them killed and one told to end: a job at a time, none sooner
    than `hold_at_least` after the last, and it goes on; with `BackgroundScheduler` and with `AsyncIOScheduler`."""
    ran = tmp_path / "ran"
    ran.touch()
    command = [sys.executable, "-W", "error", "-c", _MACHINES[kind], f"sqlite:{tmp_path / 'locks.db'}", str(ran)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    machines = [subprocess.Popen([*command, str(number)], cwd=ROOT, text=True, **pipes) for number in range(3)]

    def more(times: int) -> None:
        before = len(ran.read_text().splitlines())
        until(lambda: len(ran.read_text().splitlines()) >= before + times, what=f"{times} more runs", seconds=60)

    try:
        more(4)
        machines[0].kill()
        more(3)
        said, problem = machines[1].communicate("end\n", timeout=60)
        assert (machines[1].returncode, said) == (0, "runs\n"), problem
        more(1)
    finally:
        for machine in machines:
            machine.kill()
            machine.communicate()
    grants = [int(line.split()[0]) for line in ran.read_text().splitlines()]  # the store's clock, in microseconds
    assert all(later - earlier > 0.4e6 for earlier, later in itertools.pairwise(grants)), grants


def test_async_jobs_of_one_loop_after_another(tmp_path: Path) -> None:
    """P4: a decorated job outlives the loop that ran it first, as in programs that call `asyncio.run` for each run."""

    @on_one("report", store=f"sqlite:{tmp_path / 'locks.db'}", ttl=60)
    async def report() -> int:
        return leased.current_fencing_token() or 0

    first, second = asyncio.run(report()), asyncio.run(report())
    assert first is not None
    assert second is not None
    assert second > first
