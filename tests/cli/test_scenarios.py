"""What people use it for, start to end: a backup started twice, a wrapper that is killed, stopped, or out of disk."""

import os
import signal
import subprocess
import tarfile
import time
from pathlib import Path

from tests.cli.driving import BUSY, LEASED, LOST, UNAVAILABLE, Cli, eventually, processes
from tests.cli.test_run_signals import group_members


def test_a_backup_started_twice_runs_once(cli: Cli) -> None:
    """Two starts at once of a backup script: one writes the archive, the other ends with 75 and names the holder."""
    tree = cli.path("tree")
    for number in range(200):
        (tree / f"d{number % 10}").mkdir(parents=True, exist_ok=True)
        (tree / f"d{number % 10}" / f"f{number}").write_text(f"content {number}\n" * 50)
    backup = cli.script(
        "backup",
        'echo run >> "$here/runs"\n'
        'tar -C "$here" -cf "$here/backup.part" tree\n'
        'while [ ! -e "$here/enough" ]; do sleep 0.02; done\n'
        'mv "$here/backup.part" "$here/backup-$LEASED_FENCING_TOKEN.tar"',
    )
    started = [cli.start("run", "backup:tree", "--", backup) for _ in range(2)]
    refused = eventually(lambda: [run for run in started if run.poll() is not None], "one is refused")
    assert len(refused) == 1
    out, err = refused[0].communicate(timeout=8)
    assert (refused[0].returncode, out) == (BUSY, "")
    assert err.startswith("leased: the command did not run: 'backup:tree' is held by leased@")
    cli.path("enough").touch()
    (winner,) = (run for run in started if run not in refused)
    assert winner.wait(8) == 0
    assert cli.path("runs").read_text() == "run\n"
    (archive,) = cli.directory.glob("backup-*.tar")
    with tarfile.open(archive) as read:
        assert sum(member.isfile() for member in read) == 200


def test_many_starts_never_overlap(cli: Cli) -> None:
    """M1: eight runs at once that all wait: the commands run one after the other, and fencing tokens rise."""
    script = cli.script(
        "job",
        'mkdir "$here/inside" || echo overlap >> "$here/log"\n'
        'echo "$LEASED_FENCING_TOKEN" >> "$here/log"\n'
        'sleep 0.02\nrmdir "$here/inside"',
    )
    runs = [cli.start("run", "job", "--wait", "30", "--", script) for _ in range(8)]
    for run in runs:
        assert run.wait(9) == 0
    log = cli.path("log").read_text().split()
    assert "overlap" not in log
    assert len(log) == 8
    assert log == sorted(log, key=int)


def test_kill_9_of_the_wrapper_frees_the_key_within_a_ttl(cli: Cli) -> None:
    """The machine's out-of-memory killer takes the wrapper: the job dies with it, and the next run gets the key."""
    run = cli.start("run", "job", "--ttl", "3", "--", cli.script("job", "sleep 100 & echo $$ > $here/ready; wait"))
    group = int(cli.wait_for("ready"))
    os.kill(run.pid, signal.SIGKILL)
    began = time.monotonic()
    assert cli.run("run", "job", "--wait", "5", "--", "true").returncode == 0
    assert time.monotonic() - began < 5
    assert group_members(group) == []


def test_a_frozen_wrapper_is_told_when_it_thaws(cli: Cli) -> None:
    """A container is paused past the ttl and goes on: another run has the key by then; the first says so and stops."""
    frozen = cli.start("run", "job", "--ttl", "2", "--grace", "0.2", "--", cli.script("job", "exec sleep 100"))
    eventually(lambda: cli.held("job"), "the key is held")
    frozen.send_signal(signal.SIGSTOP)
    successor = cli.start("run", "job", "--wait", "5", "--", "sh", "-c", f"touch {cli.path('in')}; sleep 100")
    eventually(cli.path("in").exists, "the next run is in")
    frozen.send_signal(signal.SIGCONT)
    _, err = frozen.communicate(timeout=8)
    assert frozen.returncode == LOST
    assert "the lease on 'job' is over: it ran out before it was renewed" in err
    assert processes(str(cli.directory / "job")) == []
    successor.terminate()
    assert successor.wait(8) == 128 + signal.SIGTERM


def test_a_shell_script_keeps_a_lease_by_hand(cli: Cli) -> None:
    """acquire, renew and release in a script, with the handle in a variable that no process list shows."""
    leased = " ".join(f"'{word}'" for word in LEASED)
    text = f"""
    set -eu
    LEASED_HANDLE=$({leased} acquire job --ttl 20)
    export LEASED_HANDLE
    {leased} renew job --ttl 40 > "$here/renewed"
    {leased} run other -- sh -c 'test -z "${{LEASED_HANDLE-}}"'
    {leased} release job > "$here/released"
    """
    done = subprocess.run(["sh", cli.script("by-hand", text)], env=cli.environment, timeout=9, check=False)
    assert done.returncode == 0
    assert '"renewed":true' in cli.path("renewed").read_text()
    assert '"released":true' in cli.path("released").read_text()
    assert not cli.held("job")


def test_a_full_disk_is_told(cli: Cli, tmp_path: Path) -> None:
    """C135: a store that cannot be written is unavailable, not busy, and the command does not run."""
    limited = f'ulimit -f 1; exec {" ".join(LEASED)} run job -- touch "{tmp_path}/ran"'
    done = subprocess.run(
        ["bash", "-c", limited], env=cli.environment, capture_output=True, text=True, timeout=8, check=False
    )
    assert done.returncode == UNAVAILABLE
    assert str(cli.file) in done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_directory_that_cannot_be_written_is_told(cli: Cli, tmp_path: Path) -> None:
    """C135: without a place to write there is no lease, and what to do is said; even root may not write to /proc."""
    done = cli.run("run", "job", "--wait", "60", "--url", "sqlite:/proc/locks.db", "--", "touch", f"{tmp_path}/ran")
    assert done.returncode == UNAVAILABLE
    assert done.stderr.startswith("leased: /proc/locks.db cannot be used: ")
    assert "\nhint: " in done.stderr
    assert not (tmp_path / "ran").exists()
