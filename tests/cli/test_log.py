"""What the library logs, on the standard error of the command: warnings once, in one line each, and no more."""

import logging
import subprocess

import pytest

from leased.cli.log import log_shown
from leased.cli.output import Output
from leased.observe import report
from tests.cli.driving import LEASED, LOST, Cli

BUGGY_LIBRARY = """
import sys
from leased.stores import _sqlite_driver as library
if library.driver().wal:
    library.Driver.wal = property(lambda driver: False)
from leased.cli import main
sys.exit(main(sys.argv[1:]))
"""
LOG = logging.getLogger("leased.sqlite")


def test_a_change_of_the_file_is_told(cli: Cli) -> None:
    """8: that a store took its file out of WAL mode is a warning of the library; whoever ran the command sees it."""
    cli.file.touch()
    subprocess.run(
        [LEASED[0], "-c", f"import sqlite3; sqlite3.connect({str(cli.file)!r}).execute('PRAGMA journal_mode = WAL')"],
        check=True,
        timeout=8,
    )
    done = subprocess.run(
        [LEASED[0], "-c", BUGGY_LIBRARY, "run", "job", "--", "echo", "done"],
        env=cli.environment,
        capture_output=True,
        text=True,
        timeout=8,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr.startswith(f"leased: warning: {cli.file} now has a rollback journal: SQLite ")
    assert done.stderr.count("\n") == 1


def test_warnings_are_told_once_on_one_line_and_no_more_than_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    """8: a warning is told once, without control characters; what is less is not told, nor what comes afterwards."""
    with log_shown(Output(json=True, color=False)):
        for _ in range(2):
            LOG.warning("file \x1b[31m%s", "a\nb")
        LOG.info("quiet")
        LOG.debug("quiet")
    LOG.warning("afterwards")
    seen = capsys.readouterr()
    assert (seen.out, seen.err.splitlines()[0]) == ("", "leased: warning: file \\x1b[31ma\\nb")
    assert "quiet" not in seen.err
    assert seen.err.count("leased: ") == 1


def test_events_are_left_to_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """8: what happens to a lease is told by the command in its own words, not a second time as it is logged."""
    with log_shown(Output(json=True, color=False)):
        report(None, "lost", "job", data={"reason": "taken"})
    assert capsys.readouterr().err == ""


def test_a_fault_comes_with_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """8: an error of our own that was caught and logged is shown with the place where it happened, harmlessly."""

    def broken(_event: object) -> None:
        raise ZeroDivisionError("\x1b[31m")

    with log_shown(Output(json=True, color=False)):
        report(broken, "acquired", "job")
    told = capsys.readouterr().err
    assert told.startswith("leased: warning: the observer failed on acquired of key 'job'\nleased: Traceback")
    assert told.endswith("leased: ZeroDivisionError: \\x1b[31m\n")


def test_a_lost_lease_is_told_once(cli: Cli) -> None:
    """8: the end of a lease is logged as a warning, and told by the command alone."""
    lose = f"{LEASED[0]} -m leased force-release job --yes > {cli.path('forced')}; exec sleep 100"
    done = cli.run("run", "job", "--ttl", "3", "--", "sh", "-c", lose)
    assert done.returncode == LOST
    told = [line for line in done.stderr.splitlines() if line.startswith("leased: the lease") or "lost:" in line]
    assert len(told) == 1
