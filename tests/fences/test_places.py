"""Every fence: lower is refused, equal passes, none is an error, and a paused holder can do no harm."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from leased.errors import InvalidRequest, StaleFencingToken
from tests.fences.conftest import Open

ROOT = Path(__file__).parents[2]
WRITERS = 4
NO_TOKENS: tuple[Any, ...] = (None, 0, -1, True, 1.5, "7", 2**53)


def test_lower_is_refused_equal_passes(open_place: Open) -> None:
    """F1: a lower token than one seen is refused with both numbers, and writes nothing; an equal one passes, also
    with the values that are there already."""
    place = open_place()
    assert place.write(1, fencing_token=5)
    assert place.write(2, fencing_token=5)
    assert place.write(2, fencing_token=5)
    assert place.write(3, fencing_token=9)
    with pytest.raises(StaleFencingToken) as caught:
        place.write(4, fencing_token=8)
    assert (caught.value.fencing_token, caught.value.seen) == (8, 9)
    assert place.read() == 3
    assert open_place().write(5, fencing_token=9)
    assert place.read() == 5


def test_no_token_is_an_error_and_never_a_pass(open_place: Open) -> None:
    """F1: without a token, or with what is none, nothing is written."""
    place = open_place()
    for token in NO_TOKENS:
        with pytest.raises(InvalidRequest, match="fencing token"):
            place.write(1, fencing_token=token)
    assert place.read() is None


def test_the_largest_token_is_kept_exactly(open_place: Open) -> None:
    """F1: numbers next to the limit of 2^53 are told apart."""
    place = open_place()
    most = 2**53 - 1
    assert place.write(1, fencing_token=most)
    with pytest.raises(StaleFencingToken) as caught:
        place.write(2, fencing_token=most - 1)
    assert caught.value.seen == most


def test_a_paused_holder_is_refused(kind: str, url: str, open_place: Open, tmp_path: Path) -> None:
    """F1: a holder is stopped beyond its ttl, another one writes; the first goes on, and its write is refused with
    the right exception, while the second may write again."""
    holders: list[subprocess.Popen[str]] = []

    def start() -> tuple[subprocess.Popen[str], int]:
        command = [sys.executable, "-m", "tests.fences.holder", kind, url, f"sqlite:{tmp_path / 'locks.db'}"]
        holder = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        holders.append(holder)
        return holder, int(said(holder))

    def said(holder: subprocess.Popen[str]) -> str:
        assert holder.stdout is not None
        return holder.stdout.readline().strip()

    def write(holder: subprocess.Popen[str], number: int) -> str:
        assert holder.stdin is not None
        print(number, file=holder.stdin, flush=True)
        return said(holder)

    try:
        first, first_token = start()
        assert write(first, 1) == "written"
        os.kill(first.pid, signal.SIGSTOP)
        second, second_token = start()
        assert second_token > first_token
        assert write(second, 2) == "written"
        os.kill(first.pid, signal.SIGCONT)
        assert write(first, 3) == f"stale {first_token} {second_token}"
        assert write(second, 4) == "written"
        assert open_place().read() == 4
    finally:
        for holder in holders:
            holder.kill()
            holder.communicate()


def test_writers_at_full_speed_never_regress(open_place: Open) -> None:
    """F1: many writers with tokens in any order: what is there never goes back, and ends with the highest."""
    tokens = list(range(1, 121))
    random.Random(7).shuffle(tokens)
    places = [open_place() for _ in range(WRITERS)]
    reader = open_place()
    over = threading.Event()

    def write(number: int) -> None:
        for token in sorted(tokens[number::WRITERS]):
            try:
                written = places[number].write(token, fencing_token=token)
            except StaleFencingToken as error:
                written = (error.seen or 0) > token
            assert written

    def watch() -> None:
        last = 0
        while not over.is_set():
            seen = reader.read() or 0
            assert seen >= last
            last = seen

    with ThreadPoolExecutor(WRITERS + 1) as pool:
        watching = pool.submit(watch)
        try:
            for writing in [pool.submit(write, number) for number in range(WRITERS)]:
                writing.result()
        finally:
            over.set()
        watching.result()
    assert reader.read() == len(tokens)


def test_writers_in_many_processes_never_regress(kind: str, url: str, open_place: Open) -> None:
    """F1: the same by processes of their own, which begin together: nothing that Python's own lock could put in order.
    Each write is done, or refused for a higher token; what is there never goes back, and ends with the highest."""
    command = [sys.executable, "-m", "tests.fences.writer", kind, url]
    writers = [
        subprocess.Popen([*command, str(number)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for number in range(WRITERS)
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            assert writer.stdin is not None
            print(file=writer.stdin, flush=True)
        reader, last = open_place(), 0
        while any(writer.poll() is None for writer in writers):
            seen = reader.read() or 0
            assert seen >= last
            last = seen
        highest = [int(writer.communicate(timeout=60)[0]) for writer in writers]
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    assert [writer.returncode for writer in writers] == [0] * WRITERS
    assert reader.read() == max(highest) > 0


def test_until_the_new_holder_has_looked_the_old_one_may_write(open_place: Open) -> None:
    """F1: what is promised: a fence learns of a holder by its first guarded access and not by its grant. A holder that
    raises the guard with its first look sees everything that was written before, and nothing is written behind it."""
    old, new = open_place(), open_place()
    assert old.write(1, fencing_token=5)
    # by now the lease with 9 is granted; nobody has told the place
    assert old.write(2, fencing_token=5)
    assert new.look(fencing_token=9) == 2
    with pytest.raises(StaleFencingToken) as caught:
        old.write(3, fencing_token=5)
    assert (caught.value.fencing_token, caught.value.seen) == (5, 9)
    with pytest.raises(StaleFencingToken):
        old.look(fencing_token=5)
    assert new.look(fencing_token=9) == 2
    assert new.read() == 2
    assert new.write(4, fencing_token=9)
    assert new.read() == 4


def test_a_look_at_a_place_that_was_never_written(open_place: Open) -> None:
    """F1: it keeps the old holder out of what is not there yet, too."""
    old, new = open_place(), open_place()
    assert new.look(fencing_token=9) is None
    with pytest.raises(StaleFencingToken):
        old.write(1, fencing_token=5)
    assert new.read() is None
    assert new.write(2, fencing_token=9)
    assert new.look(fencing_token=12) == 2
    for token in NO_TOKENS:
        with pytest.raises(InvalidRequest, match="fencing token"):
            new.look(fencing_token=token)
