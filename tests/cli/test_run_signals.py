"""`leased run` and signals: passed on, escalated, ending a wait; the command dies with its wrapper."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.driving import BUSY, LEASED, Cli, eventually, processes, threads

RECORDS = """
for name in INT TERM HUP QUIT USR1 USR2; do trap "echo $name >> '$here/got'" $name; done
echo $$ > "$here/ready"
while [ ! -e "$here/enough" ]; do sleep 0.02; done
"""
IGNORES_TERM = """
trap '' TERM
sleep 100 &
echo $$ > "$here/ready"
wait
sleep 100
"""
HAS_CHILDREN = """
sleep 100 &
sh -c "echo two; sleep 100; '$here/job'" &
echo $$ > "$here/ready"
wait
"""


def group_members(pid: int) -> list[int]:
    """Processes of the group led by this one that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(group) == pid and state not in "ZX":
            found.append(int(path.parent.name))
    return found


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2"])
def test_signals_reach_the_command_and_the_key_stays_held(cli: Cli, name: str) -> None:
    """C155: each signal is passed on; the key is held until the command has ended by itself."""
    run = cli.start("run", "job", "--", cli.script("job", RECORDS))
    cli.wait_for("ready")
    run.send_signal(getattr(signal, f"SIG{name}"))
    assert cli.wait_for("got") == f"{name}\n"
    assert cli.held("job")
    cli.path("enough").touch()
    assert run.wait(8) == 0
    assert not cli.held("job")


def test_term_ends_the_command_and_everything_it_started(cli: Cli) -> None:
    """C155: a command with children that do not ignore TERM is gone as a whole when the wrapper has ended."""
    run = cli.start("run", "job", "--", cli.script("job", HAS_CHILDREN))
    group = int(cli.wait_for("ready"))
    run.terminate()
    assert run.wait(8) == 128 + signal.SIGTERM
    assert group_members(group) == []
    assert not cli.held("job")


def test_the_grace_period_after_term_ends_with_kill(cli: Cli) -> None:
    """C155, C095: a command that ignores TERM is killed as a group after the grace period; then the key is free."""
    run = cli.start("run", "job", "--grace", "0.4", "--", cli.script("job", IGNORES_TERM))
    group = int(cli.wait_for("ready"))
    began = time.monotonic()
    run.terminate()
    assert run.wait(8) == 128 + signal.SIGKILL
    assert time.monotonic() - began >= 0.4
    assert group_members(group) == []
    assert not cli.held("job")


def test_a_second_term_kills_at_once(cli: Cli) -> None:
    """C155: whoever asks twice does not want to wait for the grace period."""
    run = cli.start("run", "job", "--ttl", "90", "--grace", "40", "--", cli.script("job", RECORDS))
    group = int(cli.wait_for("ready"))
    run.terminate()
    cli.wait_for("got")
    run.terminate()
    assert run.wait(8) == 128 + signal.SIGKILL
    assert group_members(group) == []
    assert not cli.held("job")


def test_a_stopped_command_is_ended_too(cli: Cli) -> None:
    """C155: TERM reaches a command that somebody has stopped."""
    run = cli.start("run", "job", "--", cli.script("job", "echo $$ > $here/ready; exec sleep 100"))
    command = int(cli.wait_for("ready"))
    os.kill(command, signal.SIGSTOP)
    eventually(lambda: "(stopped)" in Path(f"/proc/{command}/status").read_text(), "the command is stopped")
    run.terminate()
    assert run.wait(8) == 128 + signal.SIGTERM


def test_the_command_dies_with_its_wrapper(cli: Cli) -> None:
    """C155: after kill -9 of the wrapper the command and its whole group are gone, and the lease ends by its ttl."""
    run = cli.start("run", "job", "--ttl", "3", "--", cli.script("job", IGNORES_TERM))
    group = int(cli.wait_for("ready"))
    run.kill()
    run.wait(8)
    eventually(lambda: not group_members(group), "the group is gone")
    eventually(lambda: not cli.held("job"), "the lease has run out")
    eventually(lambda: not processes(str(cli.directory)), "no guard stays behind")


def test_the_command_itself_dies_with_its_wrapper_even_without_the_guard(cli: Cli) -> None:
    """C155: on Linux the kernel sees to it; a wrapper and guard killed together leave no command."""
    run = cli.start("run", "job", "--ttl", "3", "--", cli.script("job", "echo $$ > $here/ready; exec sleep 100"))
    command = int(cli.wait_for("ready"))
    family = processes(str(cli.directory / "job"))
    for pid in {*family, run.pid} - {command}:
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{command}").exists(), "the command is gone")


def test_no_process_of_ours_outlives_the_run(cli: Cli) -> None:
    """C162: when the wrapper has ended there is neither guard nor waiting child."""
    assert cli.run("run", "job", "--", "true", str(cli.directory)).returncode == 0
    assert processes(str(cli.directory)) == []
    handle = cli.locks.lock("job", ttl=60).acquire()
    assert cli.run("run", "job", "--", "true", str(cli.directory)).returncode == BUSY
    assert processes(str(cli.directory)) == []
    handle.release()


def test_a_signal_that_our_caller_ignores_is_ignored_by_the_command(cli: Cli) -> None:
    """C155: under nohup the command does not die of HUP, although it is passed on."""
    script = cli.script("job", UNTIL_ENOUGH)
    run = subprocess.Popen(
        ["nohup", *LEASED, "run", "job", "--", script],
        env=cli.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    cli.wait_for("ready")
    run.send_signal(signal.SIGHUP)
    run.send_signal(signal.SIGUSR1)
    cli.wait_for("got")
    cli.path("enough").touch()
    assert run.wait(8) == 0


UNTIL_ENOUGH = """
trap 'echo USR1 >> "$here/got"' USR1
echo $$ > "$here/ready"
while [ ! -e "$here/enough" ]; do sleep 0.02; done
"""


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_a_signal_ends_the_wait_and_leaves_nothing(cli: Cli, name: str) -> None:
    """C007: a waiting run ends soon after the signal; it holds nothing then, nor takes anything later."""
    handle = cli.locks.lock("job", ttl=60).acquire()
    run = cli.start("run", "job", "--wait", "60", "--", "touch", str(cli.path("ran")))
    eventually(lambda: threads(run.pid) > 1, "it asks for the key")
    began = time.monotonic()
    number = getattr(signal, f"SIG{name}")
    run.send_signal(number)
    assert run.wait(8) == 128 + number
    assert time.monotonic() - began < 4
    assert cli.locks.status("job").fencing_token == handle.fencing_token
    assert handle.release()
    assert not cli.held("job")
    assert not cli.path("ran").exists()
    assert processes(str(cli.path("ran"))) == []


def test_a_signal_at_any_instant_of_the_start_leaves_nothing(cli: Cli) -> None:
    """C007: Ctrl-C at whatever point, also just after the store said yes, leaves no lease and no process behind."""
    assert cli.run("run", "job", "--", "true").returncode == 0
    script = cli.script("job", "exec sleep 100")
    for step in range(8):
        run = cli.start("run", "job", "--ttl", "60", "--", script)
        eventually(lambda: len(processes(script)) > 1, "the run has begun")
        time.sleep(0.014 * step)  # the instant to try, not something to wait for
        run.send_signal(signal.SIGINT)
        assert run.wait(8) == 128 + signal.SIGINT
        assert not cli.held("job")
        assert processes(script) == []


def test_a_store_that_hangs_does_not_keep_us_from_ending(cli: Cli) -> None:
    """C007: where the store does not answer, a signal still ends the run within the clean-up budget."""
    cli.run("run", "job", "--", "true")
    with cli.blocked_store():
        run = cli.start("run", "job", "--wait", "60", "--timeout", "30", "--", "true")
        eventually(lambda: threads(run.pid) > 1, "it asks for the key")
        began = time.monotonic()
        run.send_signal(signal.SIGINT)
        assert run.wait(6) == 128 + signal.SIGINT
        assert time.monotonic() - began < 4


def test_a_caller_that_ignores_its_children_is_no_problem(cli: Cli) -> None:
    """C158: some supervisors ignore SIGCHLD and leave that to whom they start; the status is found all the same."""
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    done = subprocess.run(
        [LEASED[0], "-c", ignoring, *LEASED, "run", "job", "--", "sh", "-c", "exit 7"],
        env=cli.environment,
        timeout=8,
        check=False,
    )
    assert done.returncode == 7


def test_a_process_that_cannot_be_made_is_told(cli: Cli) -> None:
    """C158: where the system allows no more processes, that is the message, and nothing is taken."""
    broken = (
        "import errno, os, sys; from leased.cli import main\n"
        "def fork(): raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))\n"
        "os.fork = fork; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [LEASED[0], "-c", broken, "run", "job", "--", "true"],
        env=cli.environment,
        capture_output=True,
        text=True,
        timeout=8,
        check=False,
    )
    assert (done.returncode, done.stderr) == (71, "leased: the system refused: Resource temporarily unavailable\n")
    assert not cli.held("job")
