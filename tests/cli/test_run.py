"""`leased run`: the command under its lease, exit statuses, being busy, what the command inherits."""

import json
import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

import leased
from leased.cli.settings import find_place
from tests.cli.driving import BUSY, LEASED, LOST, UNAVAILABLE, USAGE, Cli, eventually, processes

SHOW_ENVIRONMENT = 'env > "$here/environment"; touch "$here/ready"; while [ ! -e "$here/enough" ]; do sleep 0.02; done'
UNTIL_ENOUGH = 'echo $$ > "$here/ready"; while [ ! -e "$here/enough" ]; do sleep 0.02; done'


def test_the_command_runs_under_the_lease_and_knows_its_public_facts(cli: Cli) -> None:
    """C1: while the command runs the key is held; it finds key, owner and fencing token, and nothing secret (SEC3)."""
    handle = json.loads(cli.run("acquire", "other").stdout)["handle"]
    environment = cli.environment | {"LEASED_HANDLE": handle, "LEASED_OWNER": "of-somebody-else"}
    run = cli.start("run", "job", "--owner", "run-7", "--", cli.script("job", SHOW_ENVIRONMENT), env=environment)
    eventually(cli.path("ready").exists, "the command runs")
    status = cli.locks.status("job")
    assert (status.state, status.owner) == ("held", "run-7")
    assert status.metadata["command"] == "job"
    cli.path("enough").touch()
    assert run.wait(8) == 0
    found = dict(line.split("=", 1) for line in cli.path("environment").read_text().splitlines() if "=" in line)
    assert {name: value for name, value in found.items() if name.startswith("LEASED_")} == {
        "LEASED_KEY": "job",
        "LEASED_FENCING_TOKEN": str(status.fencing_token),
        "LEASED_OWNER": "run-7",
        "LEASED_URL": cli.url,
    }
    assert json.loads(handle)["token"] not in cli.path("environment").read_text()
    assert not cli.held("job")


def test_leased_inside_the_command_finds_the_same_store(cli: Cli) -> None:
    """8, C1: whatever named the store, and wherever the command works; a nested run of the same key is busy."""
    del cli.environment["LEASED_URL"]
    cli.path("leased.toml").write_text('url = "sqlite:named.db"')
    inner = [*LEASED, "run", "job", "--", "true"]
    for option in ([], ["--url", "sqlite:relative.db"], ["--url", cli.url]):
        done = cli.run("run", "job", *option, "--", "env", "-C", "/", *inner)
        assert (done.returncode, "'job' is held by" in done.stderr) == (BUSY, True), option
        inner_of_another = ["other" if word == "job" else word for word in inner]
        assert cli.run("run", "job", *option, "--", "env", "-C", "/", *inner_of_another).stderr == ""


def test_a_password_in_the_url_is_not_passed_on(cli: Cli) -> None:
    """C1, SEC3: the command's environment gets no secret that was not in it."""
    url = f"{cli.url}?leased_timeout=5"
    assert find_place(url, {}).to_pass_on() == url
    for secret in ("https://:lk_secret@host", "postgresql://u:pw@host/db", "mysql://h/d?password=pw"):
        assert find_place(secret, {}).to_pass_on() is None


def test_without_an_owner_none_is_inherited(cli: Cli) -> None:
    """A run inside another run does not pass on the outer one's owner as its own."""
    done = cli.run("run", "job", "--", "env", env=cli.environment | {"LEASED_OWNER": "outer"})
    assert "LEASED_OWNER" not in done.stdout


@pytest.mark.parametrize("status", [0, 1, 2, 126, 127, 255])
def test_the_exit_status_is_that_of_the_command(cli: Cli, status: int) -> None:
    """C158: what the command exits with, the wrapper exits with."""
    assert cli.run("run", "job", "--", "sh", "-c", f"exit {status}").returncode == status
    assert not cli.held("job")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_death_by_a_signal_is_128_and_its_number(cli: Cli, number: int) -> None:
    """C158: a command that dies by signal N gives 128 + N, as in a shell."""
    assert cli.run("run", "job", "--", "sh", "-c", f"kill -{int(number)} $$").returncode == 128 + number
    assert not cli.held("job")


def test_a_command_that_is_missing_is_127_and_takes_nothing(cli: Cli) -> None:
    """C158: a command that is not found is seen before the key is asked for."""
    done = cli.run("run", "job", "--", "no-such-command-anywhere")
    assert done.returncode == 127
    assert done.stderr == "leased: cannot run 'no-such-command-anywhere': No such file or directory\n"
    assert not cli.file.exists()


@pytest.mark.parametrize("name", [".", "plain"])
def test_a_command_that_is_no_program_is_126(cli: Cli, name: str) -> None:
    """C158: a directory, and a file without permission to execute, give 126 before the key is asked for."""
    cli.path("plain").touch(mode=0o644)
    done = cli.run("run", "job", "--", f"./{name}")
    assert (done.returncode, cli.file.exists()) == (126, False)
    assert "Permission denied" in done.stderr
    assert ("hint: it is a directory" if name == "." else "hint: chmod +x ./plain, or") in done.stderr


@pytest.mark.parametrize(
    ("command", "words"),
    [("plain", "write ./plain"), ("touch ran && ls", "sh -c 'touch ran && ls'")],
)
def test_a_command_that_is_missing_may_have_been_meant_otherwise(cli: Cli, command: str, words: str) -> None:
    """11: the file is in this directory, or it is a line for a shell: the hint says how to write that."""
    cli.path("plain").touch(mode=0o755)
    done = cli.run("run", "job", "--", command)
    assert (done.returncode, words in done.stderr) == (127, True)


@pytest.mark.parametrize(("text", "status"), [("no interpreter line", 126), ("#!/no/such/interpreter\n", 127)])
def test_a_command_that_fails_to_start_releases_at_once(cli: Cli, text: str, status: int) -> None:
    """C158: what can only be seen by trying frees the key as soon as it is seen, even if it was to be held at least."""
    cli.path("broken").write_text(text)
    cli.path("broken").chmod(0o755)
    done = cli.run("run", "job", "--hold-at-least", "60", "--", "./broken")
    assert done.returncode == status
    assert done.stderr.startswith("leased: cannot run './broken': ")
    assert ("such as #!/bin/sh" if status == 126 else "the interpreter in the first line") in done.stderr
    assert not cli.held("job")


def test_busy_is_75_and_one_line_that_names_the_holder(cli: Cli) -> None:
    """C160: not getting the key is a status of its own; one line names key, holder, owner, expiry, one what helps."""
    handle = cli.locks.lock("job", ttl=60, owner="run-1").acquire()
    done = cli.run("run", "job", "--", "touch", str(cli.path("ran")))
    assert done.returncode == BUSY
    assert done.stderr.endswith(" s unless renewed\nhint: pass --wait TIME to wait for it\n")
    assert done.stderr.count("\n") == 2
    holder = cli.locks.status("job").held_by
    assert done.stderr.startswith(f"leased: the command did not run: 'job' is held by {holder}, owner 'run-1'; ")
    assert not cli.path("ran").exists()
    handle.release()


def test_busy_can_be_skipped_in_silence_or_get_another_status(cli: Cli) -> None:
    """C160, C158: skipping can count as success, and the codes can be chosen."""
    handle = cli.locks.lock("job", ttl=60).acquire()
    skipped = cli.run("run", "job", "--on-busy", "skip", "--", "false")
    assert (skipped.returncode, skipped.stdout, skipped.stderr) == (0, "", "")
    assert cli.run("run", "job", "--exit-busy", "3", "--", "false").returncode == 3
    handle.release()


def test_a_wait_that_ends_in_vain_is_busy_and_says_how_long_it_was(cli: Cli) -> None:
    """C160: when the wait runs out, the line tells so too."""
    handle = cli.locks.lock("job", ttl=60).acquire()
    done = cli.run("run", "job", "--wait", "0.2", "--", "false")
    assert done.returncode == BUSY
    assert done.stderr.startswith("leased: the command did not run: waited 0.2 s: 'job' is held by ")
    assert done.stderr.endswith("\nhint: a longer --wait would go on waiting\n")
    handle.release()


def test_a_waiting_run_starts_when_the_key_is_free(cli: Cli) -> None:
    """C1: with --wait the command runs as soon as the holder has released."""
    first = cli.start("run", "job", "--", cli.script("first", UNTIL_ENOUGH))
    cli.wait_for("ready")
    second = cli.start("run", "job", "--wait", "forever", "--", "sh", "-c", f"test -e {cli.path('enough')}")
    cli.path("enough").touch()
    assert first.wait(8) == 0
    assert second.wait(8) == 0


def test_the_dead_holder_is_not_asked_after(cli: Cli) -> None:
    """C099: that the holder's process is gone lets nobody in: only the end of the lease does."""
    run = cli.start("run", "job", "--ttl", "1.5", "--", "sleep", "100")
    eventually(lambda: cli.held("job"), "the key is held")
    pid = int(cli.locks.status("job").metadata["pid"])
    run.kill()
    run.wait(8)
    assert not Path(f"/proc/{pid}").exists()
    assert cli.run("run", "job", "--", "true").returncode == BUSY
    assert cli.run("run", "job", "--wait", "5", "--", "true").returncode == 0


def test_finishing_late_leaves_the_next_run_alone(cli: Cli, tmp_path: Path) -> None:
    """C092: a run that was stopped past its ttl does not free the key of the run that came after it, and says so."""
    works = f"touch {tmp_path / 'works'}; exec sleep 100"
    late = cli.start("run", "job", "--ttl", "2", "--grace", "0.2", "--", "sh", "-c", works)
    eventually((tmp_path / "works").exists, "the work has begun")
    late.send_signal(signal.SIGSTOP)
    eventually(lambda: not cli.held("job"), "the lease has run out")
    successor = cli.locks.lock("job", ttl=60).acquire()
    late.send_signal(signal.SIGCONT)
    assert late.wait(8) == LOST
    assert cli.locks.status("job").fencing_token == successor.fencing_token
    assert successor.release()


def test_the_same_owner_takes_over(cli: Cli) -> None:
    """O1: a run with the holder's owner takes the key over at once; the earlier run is ended and told so."""
    first = cli.start("run", "job", "--owner", "task-1", "--ttl", "3", "--", "sleep", "100")
    eventually(lambda: cli.held("job"), "the key is held")
    second = cli.run("run", "job", "--owner", "task-1", "--", "true")
    assert second.returncode == 0
    assert first.wait(8) == LOST


def test_the_key_stays_closed_until_the_run_is_old_enough(cli: Cli) -> None:
    """M9: --hold-at-least outlasts a command that ends early."""
    assert cli.run("run", "job", "--hold-at-least", "60", "--", "true").returncode == 0
    assert cli.locks.status("job").state == "closed"
    busy = cli.run("run", "job", "--", "true")
    assert busy.returncode == BUSY
    assert "'job' is closed for another" in busy.stderr


def test_the_key_stays_closed_after_a_lost_lease(cli: Cli) -> None:
    """M10: --lock-delay keeps the key closed after an end without release."""
    run = cli.start("run", "job", "--lock-delay", "60", "--ttl", "3", "--", "sleep", "100")
    eventually(lambda: cli.held("job"), "the key is held")
    assert cli.locks.force_release("job")
    assert run.wait(8) == LOST
    assert cli.locks.status("job").state == "closed"


def test_a_daemon_left_behind_does_not_keep_the_key(cli: Cli) -> None:
    """C162: when the command has ended the key is free at once, whatever it left in the background."""
    daemon = cli.script("daemon", "exec sleep 100")
    leave = f"setsid {daemon} > /dev/null 2>&1 & sleep 100 > /dev/null 2>&1 & echo $! > {cli.path('pid')}; exit 0"
    assert cli.run("run", "job", "--", "sh", "-c", leave).returncode == 0
    assert not cli.held("job")
    left = [*processes(str(cli.directory / "daemon")), int(cli.path("pid").read_text())]
    for pid in left:
        os.kill(pid, signal.SIGKILL)


def test_the_command_inherits_the_callers_descriptors_and_none_of_ours(cli: Cli) -> None:
    """C162: it has what our caller left open for it, and no file, pipe or socket of ours."""
    read, write = os.pipe()
    done = cli.run("run", "job", "--", "sh", "-c", "ls -l /proc/$$/fd", pass_fds=(write,))
    os.close(read)
    os.close(write)
    numbers = {int(line.split()[-3]) for line in done.stdout.splitlines() if "->" in line}
    assert numbers == {0, 1, 2, write}


def test_standard_streams_pass_through(cli: Cli) -> None:
    """Pipes work as if the command had been started alone; we write nothing between."""
    done = cli.run("run", "job", "--", "sh", "-c", "cat; echo talk >&2", input="one\ntwo\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "one\ntwo\n", "talk\n")


def test_closed_standard_streams_are_no_problem(cli: Cli) -> None:
    """A run without any standard stream (some supervisors do that) works, and the command finds them closed too."""
    script = cli.script("job", 'ls /proc/$$/fd > "$here/seen"')
    command = shlex.join([*LEASED, "run", "job", "--", script])
    subprocess.run(["sh", "-c", f"{command} <&- >&- 2>&-"], env=cli.environment, check=True, timeout=8)
    assert not cli.held("job")
    assert cli.path("seen").exists()


def test_broken_error_output_does_not_matter(cli: Cli) -> None:
    """Talk that nobody can read changes no exit status."""
    read, write = os.pipe()
    os.close(read)
    handle = cli.locks.lock("job", ttl=60).acquire()
    busy = cli.run("run", "job", "--", "true", stderr=write)
    os.close(write)
    handle.release()
    assert busy.returncode == BUSY


def test_a_deleted_store_ends_the_command(cli: Cli) -> None:
    """C132: a run whose file is deleted notices it and ends its command; whoever uses the new file is left alone."""
    run = cli.start("run", "job", "--ttl", "3", "--", cli.script("job", "exec sleep 100"))
    eventually(lambda: cli.held("job"), "the key is held")
    cli.file.unlink()
    successor = leased.connect(cli.url)
    handle = successor.lock("job", ttl=60).acquire()
    assert run.wait(8) == LOST
    assert processes(str(cli.directory / "job")) == []
    assert handle.release()
    successor.close()


@pytest.mark.parametrize("wait", ["0", "60"])
def test_a_store_that_cannot_work_is_not_busy(cli: Cli, wait: str) -> None:
    """C135: a permanent error ends even a waiting run at once, as what it is."""
    cli.file.write_text("this is no database, and it is long enough to be looked at as one, which it fails at")
    done = cli.run("run", "job", "--wait", wait, "--", "true")
    assert done.returncode == UNAVAILABLE
    assert str(cli.file) in done.stderr
    assert "hint: " in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "job"], "put `--` and the command"),
        (["run", "--", "true"], "name the key"),
        (["run", "job", "--"], "put `--` and the command"),
        (["run", "job", "--ttl", "soon", "--", "true"], "'soon' is not a duration"),
        (["run", "job", "--ttl", "0.01", "--", "true"], "ttl 0.01 is outside"),
        (
            ["run", "job", "--ttl", "30", "--grace", "20", "--", "true"],
            "--grace 20 s does not fit into a lease of 30 s",
        ),
        (["run", "job", "--max-hold", "9", "--grace", "5", "--", "true"], "--grace 5 s does not fit"),
        (["run", "job", "--grace", "999d", "--", "true"], "is outside"),
        (["run", "job", "--enforce", "--wait", "60", "--", "true"], "--enforce counts the ttl"),
        (["run", "job", "--exit-busy", "300", "--", "true"], "--exit-busy takes a whole number from 0 to 255"),
        (["run", "a\nb", "--", "true"], "control or surrogate character"),
        (["run", "job", "extra", "--", "true"], "unrecognized arguments: extra"),
        (["run", "job", "--on-busy", "maybe", "--", "true"], "invalid choice: 'maybe'"),
        (["run", "job", "--url", "memory:", "--", "true"], "the memory store ends with this command"),
    ],
)
def test_what_cannot_work_is_64_before_anything_is_done(cli: Cli, arguments: list[str], words: str) -> None:
    """11: every mistake in the command line is told in words, with status 64, before anything is touched."""
    done = cli.run(*arguments)
    assert done.returncode == USAGE
    assert words in done.stderr
    assert not cli.file.exists()


def test_a_long_grace_brings_the_ttl_it_needs(cli: Cli) -> None:
    """C1: --grace alone is enough: the lease is then three times as long, so that it always fits in."""
    run = cli.start("run", "job", "--grace", "40s", "--", cli.script("job", UNTIL_ENOUGH))
    cli.wait_for("ready")
    assert 100 < (cli.locks.status("job").expires_in or 0) <= 120
    cli.path("enough").touch()
    assert run.wait(8) == 0


def test_a_key_that_looks_like_an_option_can_be_given(cli: Cli) -> None:
    """S3: any text is a key; one that begins with a dash stands between two `--`."""
    done = cli.run("run", "--", "--help", "--", "sh", "-c", 'echo "$LEASED_KEY"')
    assert (done.returncode, done.stdout) == (0, "--help\n")
