"""The command line itself: help, version, mistakes, completion, and how little is loaded for it."""

import json
import re
import subprocess
import sys

import pytest

import leased
from leased.cli import main
from leased.cli.parser import EXIT_STATUSES, build, subcommand
from leased.errors import LeasedError
from tests.cli.driving import LEASED, USAGE, Cli


def test_the_version_is_the_package_s(cli: Cli) -> None:
    """C4: `--version` prints name and version, wherever it stands."""
    for arguments in (["--version"], ["-V"], ["--json", "--version"]):
        done = cli.run(*arguments)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"leased {leased.__version__}\n", "")


def test_help_names_every_subcommand_and_exit_status(cli: Cli) -> None:
    """11: the help shows what there is, and every status that an error can have."""
    done = cli.run("--help")
    assert done.returncode == 0
    for name in (
        "run",
        "status",
        "list",
        "top",
        "acquire",
        "renew",
        "release",
        "force-release",
        "doctor",
        "schema",
        "verify",
        "completion",
    ):
        assert re.search(rf"^    {name}  +\w", done.stdout, re.MULTILINE), "each on one line with what it does"
    documented = {status for status, _ in EXIT_STATUSES}
    assert {str(kind.exit_status) for kind in every_error(LeasedError)} <= documented
    assert cli.run().stdout == done.stdout


def every_error(kind: type[LeasedError]) -> set[type[LeasedError]]:
    """All classes of the error tree."""
    return {kind}.union(*(every_error(below) for below in kind.__subclasses__()))


def test_every_subcommand_explains_itself(cli: Cli) -> None:
    """8: `leased COMMAND --help` shows usage and options; run's help has its exit statuses and its limits."""
    parser = build()
    assert parser._subparsers is not None
    for name in parser._subparsers._group_actions[0].choices or ():
        done = cli.run(str(name), "--help")
        assert done.returncode == 0
        assert done.stdout.startswith(f"usage: leased {name} ")
    for name in ("renew", "release"):
        assert cli.run(name, "--help").stdout.endswith(f"\n  leased {name} KEY < handle\n")
    text = cli.run("run", "--help").stdout
    assert "if --owner names one, LEASED_OWNER in its environment" in text
    assert "75 busy, 76 lost, 64 usage, 69 store unavailable" in text
    assert "while it is itself stopped (SIGSTOP, a frozen container) it stops nothing" in text


def test_the_help_begins_with_an_example(cli: Cli) -> None:
    """8: `leased --help` shows what one types most, before the list of commands."""
    text = cli.run("--help").stdout
    assert "\n  leased run nightly-report -- ./build-report.sh\n" in text.partition("commands:")[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nonsense"], "there is no command 'nonsense'"),
        (["force-release"], "the following arguments are required: KEY"),
        (["status", "a", "b"], "unrecognized arguments: b"),
        (["status", "a", "--prefix", "x"], "there is no option --prefix"),
        (["list", "--pre", "x"], "there is no option --pre"),
        (["--url"], "expected one argument"),
        (["status", "a\x1b[2J", "b\x1b[31m"], "unrecognized arguments: b\\x1b[31m"),
        (["completion", "tcsh"], "invalid choice: 'tcsh'"),
    ],
)
def test_mistakes_are_64_with_the_usage(cli: Cli, arguments: list[str], words: str) -> None:
    """11: a command line that is not understood gives 64, the usage, and the mistake without its control characters."""
    done = cli.run(*arguments)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert done.stderr.startswith("usage: leased")
    assert words in done.stderr
    assert "\x1b" not in done.stderr


RUN_USAGE = "usage: leased run KEY [options] -- COMMAND [ARGUMENT…]\n"


@pytest.mark.parametrize(
    ("arguments", "usage", "rest"),
    [
        (["run", "k", "ls"], RUN_USAGE, "leased: put `--` and the command after the key and the options\n"),
        (["run", "k", "ls", "-la"], RUN_USAGE, "leased: put `--` and the command after the key and the options\n"),
        (["run", "k"], RUN_USAGE, "leased: put `--` and the command after the key and the options\n"),
        (
            ["run", "k", "--tll", "5", "--", "ls"],
            RUN_USAGE,
            "leased: there is no option --tll\nhint: did you mean --ttl?\n",
        ),
        (
            ["run", "k", "--hold", "5"],
            RUN_USAGE,
            "leased: there is no option --hold\nhint: did you mean --hold-at-least?\n",
        ),
        (["list", "-x"], "usage: leased list ", "leased: there is no option -x\n"),
        (["rnu", "k"], "usage: leased [-h]", "leased: there is no command 'rnu'\nhint: did you mean run?\n"),
        (["staus"], "usage: leased [-h]", "leased: there is no command 'staus'\nhint: did you mean status?\n"),
        (["--josn", "list"], "usage: leased list ", "leased: there is no option --josn\nhint: did you mean --json?\n"),
        (
            ["--tiemout", "3", "list"],
            "usage: leased [-h]",
            "leased: there is no option --tiemout\nhint: did you mean --timeout?\n",
        ),
        (["--bogus"], "usage: leased [-h]", "leased: there is no option --bogus\n"),
    ],
)
def test_a_mistake_is_told_where_it_was_made(cli: Cli, arguments: list[str], usage: str, rest: str) -> None:
    """11: the usage is that of the subcommand, an unknown option is named, and what may have been meant is a hint."""
    done = cli.run(*arguments)
    assert (done.returncode, done.stdout) == (USAGE, "")
    assert done.stderr.startswith(usage)
    assert done.stderr.endswith(f"\n{rest}")
    assert done.stderr.count("leased: ") == 1


def test_two_dashes_with_nothing_behind_are_harmless(cli: Cli) -> None:
    """11: `--` ends the options, also where nothing follows."""
    assert cli.run("list", "--").returncode == 0


def test_a_reader_that_leaves_is_no_error(cli: Cli) -> None:
    """8: `leased … | head` ends quietly."""
    for number in range(3):
        cli.locks.lock(f"{'k' * 200}{number}", ttl=60).acquire().hand_over()
    reader = subprocess.Popen(["true"], stdin=subprocess.PIPE)
    reader.wait(8)
    assert reader.stdin is not None
    done = cli.run("list", stdout=reader.stdin)
    reader.stdin.close()
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["run", "k"], "run"),
        (["--url", "status", "run"], "run"),
        (["--timeout", "3", "--json", "list"], "list"),
        (["--url=x", "list"], "list"),
        (["--url"], None),
        ([], None),
    ],
)
def test_the_subcommand_is_found_without_parsing(arguments: list[str], found: str | None) -> None:
    """C1: whether `--` belongs to `leased run` is known before anything is parsed."""
    assert subcommand(arguments) == found


def test_main_can_be_called(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    """11: the command is a function of arguments and environment that returns its status."""
    environment = {"LEASED_URL": f"sqlite:{tmp_path}/locks.db"}
    assert main(["status", "job"], environment) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "free"
    assert main(["status", ""], environment) == USAGE
    assert capsys.readouterr().err.startswith("leased: the key is empty")


def test_the_completion_scripts_are_right_for_their_shells(cli: Cli) -> None:
    """C4: bash completes subcommands, options, values and the command after `--`; each script has every option."""
    script = cli.run("completion", "bash").stdout
    assert completed(script, "leased", "st") == ["status"]
    assert completed(script, "leased", "run", "key", "--on-busy", "") == ["fail", "skip"]
    assert completed(script, "leased", "completion", "z") == ["zsh"]
    assert "--fencing-token" in completed(script, "leased", "force-release", "key", "--f")
    assert completed(script, "leased", "--url", "x", "run", "key", "--hold") == ["--hold-at-least"]
    assert "env" in completed(script, "leased", "run", "key", "--", "env")
    for shell in ("bash", "zsh", "fish"):
        text = cli.run("completion", shell).stdout
        for option in ("enforce", "hold-at-least", "prefix", "yes", "timeout"):
            assert option in text


def completed(script: str, *words: str) -> list[str]:
    """What bash offers for the last word."""
    line = " ".join(f"'{word}'" for word in words)
    run = f'{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _leased; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", run], capture_output=True, text=True, check=True, timeout=5)
    return done.stdout.split()


def test_a_full_disk_is_told_even_by_the_version(cli: Cli) -> None:
    """11: data that cannot be written is status 74, with the reason."""
    with open("/dev/full", "w") as full:
        done = cli.run("--version", stdout=full)
    assert done.returncode == 74
    assert done.stderr.startswith("leased: standard output cannot be written: ")


def modules(cli: Cli, program: str, *arguments: str) -> set[str]:
    """The modules that a program has loaded which ends by printing them."""
    done = subprocess.run(
        [LEASED[0], "-c", program, *arguments],
        env=cli.environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=8,
    )
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (None, set()),
        (["--version"], {"leased.cli.streams"}),
        (
            ["--help"],
            {"leased.cli.streams", "leased.cli.dispatch", "leased.cli.parser", "leased.cli.output", "leased.errors"},
        ),
    ],
)
def test_nothing_is_loaded_before_it_is_needed(cli: Cli, arguments: list[str] | None, parts: set[str]) -> None:
    """C4: the command knows what is asked of it before it loads what that takes."""
    call = "" if arguments is None else f"main({arguments!r}); "
    loaded = modules(cli, f"import sys; from leased.cli import main; {call}print(*sorted(sys.modules))")
    assert {name for name in loaded if name.startswith("leased")} == {"leased", "leased.cli", *parts}
    assert "leased.cli.output" in parts or not {"argparse", "dataclasses", "inspect", "logging"} & loaded


def test_little_is_loaded(cli: Cli) -> None:
    """C4: a run loads no asyncio, no third-party module and nothing that only other subcommands need."""
    listing = "import sys; from leased.cli import main; main(sys.argv[1:]); print(*sorted(sys.modules))"
    loaded = modules(cli, listing, "run", "job", "--", "true")
    tops = {name.split(".")[0] for name in loaded} - {"__main__", "leased", "apsw"}
    installed_by_the_test_environment = {name for name in tops if name.startswith(("_", "distutils", "sitecustomize"))}
    assert tops - installed_by_the_test_environment <= sys.stdlib_module_names
    assert (
        not {"asyncio", "tomllib", "subprocess", "leased.cli.doctor", "leased.cli.completion", "leased.testing"}
        & loaded
    )
