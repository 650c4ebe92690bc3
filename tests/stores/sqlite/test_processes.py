"""Several processes on one file: nobody overlaps, nobody starves, and whoever dies or forks harms nobody."""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import leased
from leased.clocks import step
from leased.model import Claim, Contended, Held
from leased.stores._sqlite_driver import Driver
from tests.stores.sqlite.conftest import Make, rows

ROOT = Path(__file__).parents[3]


def command(program: str, *arguments: object) -> list[str]:
    """How to start one of the programs."""
    return [sys.executable, "-m", "tests.stores.sqlite.programs", program, *map(str, arguments)]


def run(program: str, *arguments: object, complains: str = "") -> list[dict[str, Any]]:
    """Run a program to its end: the lines it told. All that it may complain of are lines with the given text."""
    done = subprocess.run(
        command(program, *arguments), cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert all(complains and complains in line for line in done.stderr.splitlines()), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@contextmanager
def running(program: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A program that runs during the block, and is killed after it."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command(program, *arguments), cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def heard(process: subprocess.Popen[str], say: str | None = None) -> dict[str, Any]:
    """The next line of a program, after telling it something."""
    assert process.stdin is not None
    assert process.stdout is not None
    if say is not None:
        process.stdin.write(f"{say}\n")
        process.stdin.flush()
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


def test_no_increment_is_lost(path: Path) -> None:
    """Processes that wait for one lock to add one to a number never meet inside, and miss none."""
    told = run("count", path, 4, 30)
    assert told == [{"overlaps": 0}] * 4 + [{"number": 120}]


def test_many_processes_share_the_file(path: Path, library: Driver) -> None:
    """Many processes on many keys: no "database is locked", no two inside, nobody passed over for long (C128)."""
    told = run("hammer", path, library.name, 16, 2.5)
    assert [line for line in told if "failed" in line] == []
    assert sum(line["overlaps"] for line in told) == 0
    assert len(told) == 16
    assert min(line["grants"] for line in told) > 0
    assert max(line["worst"] for line in told) < 2.5
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


def test_a_killed_process_leaves_leases_that_end(make: Make, path: Path, library: Driver) -> None:
    """Whenever a process is killed, every record has an end, and after it each key can be had (C047, C090)."""
    chance = random.Random(20_260_101)
    step(make().status("key", timeout=5.0))
    for kill in range(6):
        with running("work_until_killed", path, library.name, kill) as process:
            heard(process)
            time.sleep(chance.random() * 0.1)
            process.kill()
            process.wait()
        store = make()
        held = "SELECT count(*) FROM record WHERE token IS NOT NULL AND NOT"
        step(store.status("key", timeout=5.0))
        assert rows(path, f"{held} (expires_at > acquired_at AND free_at >= expires_at)") == [(0,)]
        store.offset = 21.0 * (kill + 1)
        for key in range(5):
            granted = step(store.acquire(Claim(f"key-{key}", f"{kill} {key}", 0.2), timeout=5.0))
            assert isinstance(granted, Held)
            assert step(store.release(f"key-{key}", f"{kill} {key}", timeout=5.0))
        step(store.close())
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


def test_a_dead_holder_counts_until_its_lease_ends(make: Make, path: Path) -> None:
    """That the holder's process is gone, or cannot be seen from here, frees nothing: only expiry decides (C099)."""
    with running("hold_until_told", path) as process:
        heard(process)
        process.kill()
        process.wait()
    store = make()
    seen = step(store.acquire(Claim("key", "token", 30.0), timeout=5.0))
    assert isinstance(seen, Contended)
    assert seen.status is not None
    assert str(process.pid) in (seen.status.held_by or "")
    store.offset = 0.4
    assert isinstance(step(store.acquire(Claim("key", "next", 30.0), timeout=5.0)), Held)


@pytest.mark.real_clock
def test_a_stopped_holder_wakes_up_without_the_lock(path: Path) -> None:
    """A process that was stopped past its lease knows so at once, has the lower number, renews nothing (C199)."""
    with running("hold_until_told", path) as process:
        first = heard(process)
        process.send_signal(signal.SIGSTOP)
        with leased.connect(f"sqlite:{path}") as locks, locks.lock("key", wait="5s") as held:
            process.send_signal(signal.SIGCONT)
            later = heard(process, "go on")
            held.ensure_held()
    assert (first["lost"], later["lost"], later["renewed"]) == (False, True, False)
    assert later["fencing_token"] == first["fencing_token"] < held.fencing_token


def test_forked_children_open_the_file_for_themselves(path: Path, library: Driver) -> None:
    """Parent and children all use the store, from threads too, and end in every way: nothing breaks (C130)."""
    told = run("fork_while_working", path, library.name)
    assert sorted(line["child"] for line in told if "child" in line) == list(range(9))
    (end,) = (line for line in told if "ends" in line)
    assert end == {"ends": [-9, 0, 0] * 3, "failures": [], "kept": True}
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.real_clock
def test_a_forked_child_frees_nothing_of_its_parent(path: Path) -> None:
    """Whether a child exits, crashes or calls release, the parent's lease goes on and is renewed (C012)."""
    told = run("fork_with_a_handle", path)
    assert [line["reason"] for line in told if "end" in line] == ["forked"] * 3
    assert told[3] == {"released": False}
    assert told[-1] == {"lost": False, "held": True, "released": True}


def test_a_command_inherits_nothing(path: Path) -> None:
    """What a holder starts gets none of its descriptors: not the file's, not the turn's, not the pipe's (C162)."""
    (told,) = run("show_descriptors", path)
    assert len(told["ours"]) >= 3
    assert told["inherited"] == []


def test_a_program_that_closes_nothing_ends_at_once(path: Path) -> None:
    """Workers, listeners and connections keep no program alive, and its end is quiet but for the leases left behind."""
    began = time.monotonic()
    (told,) = run("end_at_once", path, complains="dropped without release")
    assert len(set(told["numbers"])) == 2
    assert time.monotonic() - began < 8.0


def test_the_two_libraries_exclude_each_other(path: Path) -> None:
    """Processes with different SQLite libraries share one file and one set of locks."""
    with running("ring", path, "sqlite3") as process:
        heard(process)
        assert heard(process, "first") == {"released": True}
        with leased.connect(f"sqlite:{path}") as locks:
            with locks.lock("key"):
                assert heard(process, "second") == {"released": False}
            assert heard(process, "third") == {"released": True}
