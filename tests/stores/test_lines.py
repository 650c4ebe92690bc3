"""Who waits in one line: callers of the same locks, however their URLs are spelled, and nobody else."""

import pytest

from leased.clocks import BlockingClock
from leased.targets import Options, lines_of, read_url

SAME = [
    ("redis://localhost", "valkey://localhost:6379/0"),
    ("redis://localhost", "redis://user:password@LOCALHOST?leased_timeout=1"),
    ("postgresql://me@localhost/app", "postgres://you@localhost:5432/app?leased_pool=2"),
    ("mysql://me@localhost/app", "mariadb://you@localhost:3306/app"),
]
OTHER = [
    ("redis://localhost", "redis://localhost/1"),
    ("redis://localhost", "redis://localhost?leased_namespace=n"),
    ("postgresql://localhost/app", "postgresql://localhost/other"),
    ("postgresql://localhost/app", "postgresql://localhost/app?leased_table=other"),
    ("mysql://localhost/app", "mysql://localhost/app?leased_table=other"),
    ("mysql://localhost/app", "mysql://localhost:3307/app"),
]


def lines(url: str) -> object:
    return lines_of(read_url(url, Options(BlockingClock())))


@pytest.mark.parametrize(("one", "two"), SAME)
def test_the_same_locks_have_one_line(one: str, two: str) -> None:
    """W4: two clients of one process on the same locks stand in one line, whoever logs in."""
    first = lines(one)
    assert first is lines(two)


@pytest.mark.parametrize(("one", "two"), OTHER)
def test_other_locks_have_lines_of_their_own(one: str, two: str) -> None:
    """S3: a waiter for the same key in another namespace, table or database stands in nobody's way."""
    first = lines(one)
    assert first is not lines(two)
