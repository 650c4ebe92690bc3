"""`leased run` when its lease does not last as long as the command: ended in time, as a whole, and told so."""

import os
import signal
import time

import pytest

from tests.cli.driving import LOST, Cli, eventually
from tests.cli.test_run_signals import IGNORES_TERM, group_members

COUNTS_TERM = """
trap 'echo TERM >> "$here/got"' TERM
echo $$ > "$here/ready"
while [ ! -e "$here/enough" ]; do sleep 0.02; done
"""


@pytest.mark.parametrize("text", ["sleep 100 & wait", IGNORES_TERM])
def test_a_lost_lease_ends_the_whole_group(cli: Cli, text: str) -> None:
    """C156: when the lease is lost, the shell *and* what it started are ended within the grace period."""
    script = cli.script("job", f"echo $$ > $here/ready\n{text}")
    run = cli.start("run", "job", "--ttl", "3", "--grace", "0.3", "--", script)
    group = int(cli.wait_for("ready"))
    assert cli.locks.force_release("job")
    assert run.wait(8) == LOST
    assert group_members(group) == []
    assert run.stderr is not None
    told = run.stderr.read()
    assert told.startswith("leased: the lease on 'job' is over: it was released by force;")
    assert "hint: let writes carry LEASED_FENCING_TOKEN" in told


def test_after_a_refusal_term_comes_at_once_and_kill_after_the_grace(cli: Cli) -> None:
    """C1: a definite loss is no reason to hurry beyond the grace period, nor to wait before TERM."""
    run = cli.start("run", "job", "--ttl", "6", "--grace", "1", "--", cli.script("job", COUNTS_TERM))
    group = int(cli.wait_for("ready"))
    assert cli.locks.force_release("job")
    cli.wait_for("got")
    told_at = time.monotonic()
    assert group_members(group)
    assert run.wait(8) == LOST
    assert time.monotonic() - told_at > 0.7
    assert group_members(group) == []


def test_when_renewals_fail_the_command_is_dead_before_the_lease_ends(cli: Cli) -> None:
    """C1: TERM comes the grace period before the end, and KILL while the store still says that the key is held."""
    wide_margin = f"{cli.url}?leased_clock_margin=0.2"  # the end of belief well before that of the lease
    script = cli.script("job", COUNTS_TERM)
    run = cli.start("run", "job", "--url", wide_margin, "--ttl", "4", "--grace", "0.8", "--", script)
    group = int(cli.wait_for("ready"))
    with cli.blocked_store():
        cli.wait_for("got")
        told = cli.locks.status("job")
        eventually(lambda: not group_members(group), "the group is gone")
        killed = cli.locks.status("job")
        assert (told.held, killed.held) == (True, True)
        assert killed.fencing_token == told.fencing_token
        assert (told.expires_in or 0) > (killed.expires_in or 0) + 0.4
    assert run.wait(8) == LOST
    assert run.stderr is not None
    assert "was about to end, since the store did not answer its renewals; the command was ended in time" in (
        run.stderr.read()
    )


def test_renewals_that_fail_for_a_while_do_no_harm(cli: Cli) -> None:
    """H1: a store that is back before the end of the lease costs nothing."""
    run = cli.start("run", "job", "--ttl", "9", "--grace", "0.5", "--", cli.script("job", COUNTS_TERM))
    cli.wait_for("ready")
    with cli.blocked_store():
        eventually(lambda: (cli.locks.status("job").expires_in or 9) < 5.7, "a renewal is overdue")
    eventually(lambda: (cli.locks.status("job").expires_in or 0) > 7, "it was renewed")
    cli.path("enough").touch()
    assert run.wait(8) == 0
    assert not cli.path("got").exists()


def test_the_lease_is_renewed_as_long_as_the_command_runs(cli: Cli) -> None:
    """H1: a command may run for many times its ttl."""
    run = cli.start("run", "job", "--ttl", "2", "--", "sleep", "5")
    assert run.wait(8) == 0


def test_enforce_ends_the_command_before_its_fixed_lease_is_over(cli: Cli) -> None:
    """C1, H5: nothing is renewed; TERM and KILL come so that the command is over while the key is still held."""
    run = cli.start("run", "job", "--enforce", "--ttl", "6", "--grace", "2", "--", cli.script("job", COUNTS_TERM))
    group = int(cli.wait_for("ready"))
    eventually(lambda: not group_members(group), "the group is gone")
    assert run.wait(15) == LOST
    assert cli.wait_for("got") == "TERM\n"
    assert run.stderr is not None
    assert "its 6.0 s are over (--enforce); the command was ended in time" in run.stderr.read()
    assert not cli.held("job")


def test_max_hold_ends_the_command_although_it_was_renewed(cli: Cli) -> None:
    """M8: the absolute end cannot be moved by renewals; the command is ended the grace period before it."""
    began = time.monotonic()
    script = cli.script("job", COUNTS_TERM)
    run = cli.start("run", "job", "--ttl", "4", "--max-hold", "5", "--grace", "1", "--", script)
    assert run.wait(8) == LOST
    assert time.monotonic() - began > 3.3
    assert run.stderr is not None
    assert "--max-hold (5.0 s) is over" in run.stderr.read()


def test_a_wrapper_that_was_stopped_past_its_ttl_learns_it_at_once(cli: Cli) -> None:
    """C1: after SIGSTOP past the ttl and SIGCONT the command is ended and the status says lost."""
    run = cli.start("run", "job", "--ttl", "2", "--grace", "0.2", "--", cli.script("job", IGNORES_TERM))
    group = int(cli.wait_for("ready"))
    run.send_signal(signal.SIGSTOP)
    eventually(lambda: not cli.held("job"), "the lease has run out")
    assert group_members(group)
    run.send_signal(signal.SIGCONT)
    began = time.monotonic()
    assert run.wait(8) == LOST
    assert time.monotonic() - began < 4
    assert group_members(group) == []


def test_a_loss_that_only_the_release_noticed_is_told(cli: Cli) -> None:
    """H4: a command that ended under a lease which was gone by then does not count as a success."""
    run = cli.start("run", "job", "--ttl", "60", "--", cli.script("job", COUNTS_TERM))
    cli.wait_for("ready")
    assert cli.locks.force_release("job")
    cli.path("enough").touch()
    assert run.wait(8) == LOST
    assert run.stderr is not None
    assert "had ended before the command did" in run.stderr.read()


def test_the_status_of_a_loss_can_be_chosen(cli: Cli) -> None:
    """C158: --exit-lost replaces 76."""
    run = cli.start("run", "job", "--ttl", "3", "--exit-lost", "9", "--", cli.script("job", COUNTS_TERM))
    cli.wait_for("ready")
    assert cli.locks.force_release("job")
    cli.wait_for("got")
    cli.path("enough").touch()
    assert run.wait(8) == 9


def test_a_store_that_is_gone_at_the_end_changes_no_status(cli: Cli) -> None:
    """H4: the command's own status is never replaced by a release that failed; when the key is free is said."""
    run = cli.start("run", "job", "--ttl", "30", "--", cli.script("job", COUNTS_TERM + "\nexit 5"))
    cli.wait_for("ready")
    with cli.blocked_store():
        cli.path("enough").touch()
        assert run.wait(8) == 5
    assert run.stderr is not None
    assert "the key could not be released" in run.stderr.read()


def test_a_killed_wrapper_frees_its_key_within_a_ttl(cli: Cli) -> None:
    """C047: kill -9 in the middle of a run leaves the key taken for one ttl at the most."""
    run = cli.start("run", "job", "--ttl", "2", "--", "sleep", "100")
    eventually(lambda: cli.held("job"), "the key is held")
    os.kill(run.pid, signal.SIGKILL)
    began = time.monotonic()
    assert cli.run("run", "job", "--wait", "5", "--", "true").returncode == 0
    assert time.monotonic() - began < 5
