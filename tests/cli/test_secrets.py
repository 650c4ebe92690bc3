"""No secret leaves by any way out: output, errors, arguments, environment, the store's file (C176, SEC3)."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.driving import LEASED, Cli, eventually, processes

CANARY = "c4n4ry-s3cret"


@pytest.mark.parametrize(
    "url",
    [
        f"redis://user:{CANARY}@localhost:1/0?leased_timeout=1",
        f"redis://:{CANARY}%40@localhost/0?leased_timeout=1",
        f"nosuch://u:{CANARY}@h/x?token={CANARY}",
        f"postgresql://h/db?password={CANARY}&sslmode=require",
        f"//u:{CANARY}@h",
        f"redis://u:{CANARY}@[::1/x",
        f"sqlite:/x?token={CANARY}",
        f"sqlite://u:{CANARY}@h/x",
    ],
)
@pytest.mark.parametrize("arguments", [["status", "job"], ["doctor"], ["run", "job", "--", "env"], ["acquire", "job"]])
def test_a_password_in_a_url_is_never_printed(cli: Cli, url: str, arguments: list[str]) -> None:
    """C176: whatever is wrong with a URL, the message about it does not show its credential."""
    del cli.environment["LEASED_URL"]
    cli.path("leased.toml").write_text(f"url = {json.dumps(url)}")
    by_file = cli.run(*arguments)
    assert CANARY not in by_file.stdout + by_file.stderr
    by_option = cli.run("--url", url, *arguments)
    assert CANARY not in by_option.stdout + by_option.stderr
    assert by_option.returncode in {1, 64, 69}


@pytest.mark.parametrize("command", [("keys", "list", "--project", "p"), ("serve", "--port", "0")])
def test_a_password_in_an_argument_is_warned_of(cli: Cli, command: tuple[str, ...]) -> None:
    """§12, SEC16: also one of a registry, which stands in the list of processes while the service runs."""
    key = cli.path("registry.key")
    url = f"postgresql://nobody:{CANARY}@127.0.0.1:1/none"
    done = cli.run(*command, "--registry", url, "--registry-key", str(key))
    assert done.returncode not in (0, None)
    assert (
        "a password in an argument can be seen by everybody on this machine; use LEASED_SERVE_REGISTRY" in done.stderr
    )
    assert CANARY not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--ulr", f"redis://u:{CANARY}@h", "status", "k"],
        ["run", "k", f"--ulr=redis://u:{CANARY}@h", "--", "ls"],
        ["run", "k", "--ulr", f"redis://u:{CANARY}@h", "--", "ls"],
        [f"redis://u:{CANARY}@h", "status", "k"],
        ["status", "k", f"redis://u:{CANARY}@h"],
        ["release", "k", "--handel", CANARY],
        ["release", "k", CANARY],
    ],
)
def test_a_mistake_beside_a_secret_does_not_print_it(cli: Cli, arguments: list[str]) -> None:
    """C176: what stands in the wrong place is named without what may be secret in it."""
    done = cli.run(*arguments)
    assert done.returncode == 64
    assert CANARY not in done.stdout + done.stderr


def test_a_token_is_nowhere_but_in_the_printed_handle(cli: Cli) -> None:
    """SEC2, SEC3: a handle's token is in the output of `acquire` only; not in files, statuses, errors or arguments."""
    line = cli.run("acquire", "job", "--owner", "run-1").stdout
    token = json.loads(json.loads(line)["handle"])["token"]
    assert line.count(token) == 1
    shown = [cli.run(*arguments) for arguments in (["status", "job"], ["list"], ["acquire", "job"], ["doctor"])]
    shown.append(cli.run("run", "job", "--owner", "run-1", "--", "env"))
    shown.append(cli.run("release", "job", input=line))
    assert not any(token in done.stdout + done.stderr for done in shown)
    assert not any(token.encode() in path.read_bytes() for path in cli.directory.iterdir() if path.is_file())


def test_the_command_and_its_guard_carry_no_token(cli: Cli) -> None:
    """SEC3: neither the environment nor the arguments of any process of a run hold the handle of the caller."""
    handle = json.loads(cli.run("acquire", "other").stdout)["handle"]
    token = json.loads(handle)["token"]
    environment = cli.environment | {"LEASED_HANDLE": handle}
    done = cli.run("run", "job", "--", "sh", "-c", "cat /proc/$$/environ /proc/$$/cmdline", env=environment)
    assert done.returncode == 0
    assert token not in done.stdout


def test_a_traceback_of_a_bug_shows_no_token(cli: Cli) -> None:
    """SEC3: even an error of our own, told with a traceback, shows no value of a handle."""
    line = cli.run("acquire", "job").stdout
    token = json.loads(json.loads(line)["handle"])["token"]
    broken = (
        "import leased, sys; from leased.cli import main; leased.Handle.release = None; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [LEASED[0], "-c", broken, "release", "job"],
        env=cli.environment,
        input=line,
        capture_output=True,
        text=True,
        timeout=8,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert token not in done.stderr


def test_no_process_argument_holds_a_token(cli: Cli) -> None:
    """SEC3: while runs and renewals are at work, no command line on this machine holds the token."""
    line = cli.run("acquire", "job").stdout
    token = json.loads(json.loads(line)["handle"])["token"].encode()
    renewing = [cli.start("renew", "job", stdin=subprocess.PIPE) for _ in range(3)]
    eventually(lambda: len(processes("renew\0job")) == len(renewing), "they run")
    seen = b""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            seen += path.read_bytes()
        except OSError:
            continue
    assert token not in seen
    for process in renewing:
        assert process.stdin is not None
        process.communicate(line, timeout=8)
        assert process.returncode == 0
