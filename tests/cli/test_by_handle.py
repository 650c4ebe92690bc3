"""`leased acquire`, `renew` and `release`: a lease whose handle the caller keeps, and which nobody else can touch."""

import json
import os

from tests.cli.driving import BUSY, LOST, USAGE, Cli, eventually
from tests.cli.terminal import Terminal


def test_acquire_renew_release(cli: Cli) -> None:
    """C2: the handle that acquire printed renews and releases; the key is held in between."""
    line = cli.run("acquire", "job", "--ttl", "20", "--owner", "run-1").stdout
    taken = json.loads(line)
    status = cli.locks.status("job")
    assert (status.owner, status.fencing_token) == ("run-1", taken["fencingToken"])
    assert taken["ttlMs"] == 20_000
    assert 18_000 < taken["leftMs"] < 20_000
    renewed = cli.data("renew", "job", "--ttl", "90", input=line)
    assert (renewed["renewed"], renewed["fencingToken"]) == (True, taken["fencingToken"])
    assert (cli.locks.status("job").expires_in or 0) > 80
    assert cli.data("release", "job", input=line)["released"] is True
    assert not cli.held("job")


def test_the_handle_is_read_from_the_environment_or_the_input_in_both_forms(cli: Cli) -> None:
    """C2: `LEASED_HANDLE`, or standard input; the line of acquire, or the handle in it."""
    line = cli.run("acquire", "job").stdout
    text = json.loads(line)["handle"]
    for form in (line, text, f"\n {text}\n"):
        assert cli.data("renew", "job", input=form)["renewed"]
        assert cli.data("renew", "job", env=cli.environment | {"LEASED_HANDLE": form})["renewed"]
    assert cli.run("release", "job", env=cli.environment | {"LEASED_HANDLE": text}).returncode == 0
    assert not cli.held("job")


def test_a_handle_in_an_argument_warns(cli: Cli) -> None:
    """SEC16: arguments can be seen by everybody on the machine."""
    text = json.loads(cli.run("acquire", "job").stdout)["handle"]
    done = cli.run("release", "job", "--handle", text)
    assert done.returncode == 0
    assert "warning: a handle in an argument can be seen by everybody" in done.stderr
    assert not cli.held("job")


def test_acquire_is_one_attempt(cli: Cli) -> None:
    """C2, C160: a held key is 75 at once, with the holder named and no handle."""
    handle = cli.locks.lock("job", ttl=60, owner="run-1").acquire()
    done = cli.run("acquire", "job")
    assert (done.returncode, done.stdout) == (BUSY, "")
    assert done.stderr.startswith("leased: 'job' is held by ")
    assert "owner 'run-1'" in done.stderr
    assert done.stderr.count("\n") == 1
    handle.release()


def test_a_handle_that_cannot_be_printed_is_given_back(cli: Cli) -> None:
    """C2: a lease whose handle reached nobody does not stay."""
    full = os.open("/dev/full", os.O_WRONLY)
    done = cli.run("acquire", "job", stdout=full)
    os.close(full)
    assert done.returncode == 74
    assert "standard output cannot be written: [Errno 28] No space left on device" in done.stderr
    assert not cli.held("job")
    read, write = os.pipe()
    os.close(read)
    gone = cli.run("acquire", "job", stdout=write)
    os.close(write)
    assert (gone.returncode, gone.stderr) == (141, "")
    assert not cli.held("job")


def test_each_ending_has_a_true_sentence(cli: Cli) -> None:
    """C186, C092: renewing or releasing what is over tells what is known, names the holder, and changes nothing."""
    expired = cli.run("acquire", "job", "--ttl", "0.2").stdout
    eventually(lambda: not cli.held("job"), "it has run out")
    for command in ("renew", "release"):
        done = cli.run(command, "job", input=expired)
        assert (done.returncode, done.stdout) == (LOST, "")
        assert done.stderr == (
            "leased: this handle does not hold 'job': it was released before, or ran out; the key is now free\n"
        )
    successor = cli.locks.lock("job", ttl=60, owner="next").acquire()
    for command in ("renew", "release"):
        done = cli.run(command, "job", input=expired)
        assert done.returncode == LOST
        assert "somebody else took the key since; the key is now held by " in done.stderr
        assert "(owner 'next')" in done.stderr
    assert successor.release()
    released = cli.run("acquire", "job").stdout
    assert cli.run("release", "job", input=released).returncode == 0
    assert cli.run("release", "job", input=released).returncode == LOST
    forced = cli.run("acquire", "job").stdout
    assert cli.locks.force_release("job")
    assert "it was ended by force" in cli.run("renew", "job", input=forced).stderr


def test_the_handle_of_another_key_is_refused(cli: Cli) -> None:
    """C186: the key that is named has to be the handle's; nothing is changed otherwise."""
    line = cli.run("acquire", "one").stdout
    done = cli.run("release", "two", input=line)
    assert done.returncode == USAGE
    assert "this is a handle of 'one', not of 'two': nothing was changed" in done.stderr
    assert cli.held("one")


def test_what_is_no_handle_is_refused_and_not_shown(cli: Cli) -> None:
    """SEC17: text that is no handle, of whatever kind and size, is refused without being printed."""
    token = json.loads(json.loads(cli.run("acquire", "job").stdout)["handle"])["token"]
    damaged = [
        "",
        token,
        "{",
        "[" * 5000,
        json.dumps({"leased": 1, "key": "job", "token": token}),
        json.dumps({"leased": 2, "secret": True, "key": "job", "token": token, "fencingToken": 1, "owner": None}),
        json.dumps({"handle": {"token": token}}),
        token * 2000,
    ]
    for text in damaged:
        done = cli.run("release", "job", input=text)
        assert done.returncode == USAGE, text[:80]
        assert token not in done.stderr + done.stdout
        assert done.stderr.count("\n") <= 2
    assert cli.held("job")


def test_nobody_is_asked_to_type_a_handle(cli: Cli) -> None:
    """C2: on a terminal without a handle it says how to pass one instead of waiting for keys."""
    terminal = Terminal(*cli.LEASED, "release", "job", environment=cli.environment, directory=cli.directory)
    assert terminal.finish() == USAGE
    assert "no handle was passed" in terminal.screen
    terminal.close()
