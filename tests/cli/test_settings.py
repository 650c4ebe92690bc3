"""Which store is used: `--url`, `LEASED_URL`, `leased.toml`, a file of this user; and what is unwise or impossible."""

import os
import pwd
import stat
from pathlib import Path

import pytest

from leased.cli.settings import find_place
from leased.errors import InvalidRequest, StoreNotUsable
from tests.cli.driving import UNAVAILABLE, USAGE, Cli


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, two levels deep in an empty place."""
    directory = tmp_path / "project" / "sub"
    directory.mkdir(parents=True)
    monkeypatch.chdir(directory)
    return directory


def test_the_option_comes_before_the_environment_before_the_file_before_the_default(here: Path) -> None:
    """8: the nearest wish counts."""
    (here / "leased.toml").write_text('url = "sqlite:/file.db"')
    environment = {"LEASED_URL": "sqlite:/environment.db", "HOME": "/home/u"}
    assert find_place("sqlite:/option.db", environment).url == "sqlite:/option.db"
    assert find_place(None, environment).url == "sqlite:/environment.db"
    assert find_place(None, {"HOME": "/home/u", "LEASED_URL": ""}).url == "sqlite:/file.db"
    (here / "leased.toml").unlink()
    assert find_place(None, {"HOME": "/home/u"}).url == "sqlite:/home/u/.local/state/leased/locks.db"


def test_the_file_is_found_from_below_and_its_paths_are_its_own(here: Path) -> None:
    """8: the same settings file means the same store, wherever in the project the command is run."""
    (here.parent / "leased.toml").write_text('url = "sqlite:locks.db?leased_timeout=3"')
    place = find_place(None, {})
    assert place.url == f"sqlite:{here.parent}/locks.db?leased_timeout=3"
    assert place.named_by == str(here.parent / "leased.toml")
    assert place.warnings == ()
    (here / "leased.toml").write_text('url = "sqlite:///absolute.db"')
    assert find_place(None, {}).url == "sqlite:///absolute.db"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names no store"),
        ('ulr = "sqlite:x"', "names no store"),
        ("url = 3", "names no store"),
        ("url = ", "is not TOML"),
        ("\xff", "is not TOML"),
    ],
)
def test_a_file_that_names_no_store_is_refused(here: Path, text: str, words: str) -> None:
    """8: a settings file with a mistake never means another store in silence."""
    (here / "leased.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidRequest, match=words):
        find_place(None, {"HOME": "/home/u"})


def test_a_name_that_is_not_known_is_told(here: Path) -> None:
    """8: what is not understood is said, once, in words."""
    (here / "leased.toml").write_text('url = "sqlite:/x"\ntimeout = 3')
    assert find_place(None, {}).warnings == (f"{here / 'leased.toml'}: unknown setting 'timeout'; known is url",)


def test_a_file_that_everybody_can_change_is_refused(here: Path) -> None:
    """SEC16: whoever can write the file chooses whom the lock excludes; skipping it would choose another store."""
    (here / "leased.toml").write_text('url = "sqlite:/x"')
    (here / "leased.toml").chmod(0o666)
    with pytest.raises(InvalidRequest, match="can be changed by, another user"):
        find_place(None, {})


def test_a_file_of_another_user_is_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC16: a settings file planted in a shared directory is not followed."""
    (here / "leased.toml").write_text('url = "sqlite:/x"')
    if os.geteuid() == 0:
        os.chown(here / "leased.toml", 12345, 12345)
    else:  # only root can give files away: become somebody else instead
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(InvalidRequest, match="belongs to"):
        find_place(None, {})


@pytest.mark.parametrize(
    "url", ["redis://:s3cr3t@h/0", "redis://u:s3cr3t@h", "x://h/?password=s3cr3t", "x://h?a=1&api_key=s3cr3t"]
)
def test_a_password_that_others_can_see_warns(here: Path, url: str) -> None:
    """SEC16: a credential in an argument, or in a file that others can read, is told; the credential itself is not."""
    warning = find_place(url, {}).warnings[0]
    assert "password in an argument" in warning
    assert "s3cr3t" not in warning
    assert find_place(None, {"LEASED_URL": url}).warnings == ()
    file = here / "leased.toml"
    file.write_text(f'url = "{url}"')
    file.chmod(0o644)
    assert find_place(None, {}).warnings == (f"{file} holds a password and can be read by others; chmod 600 it",)
    file.chmod(0o600)
    assert find_place(None, {}).warnings == ()
    assert "s3cr3t" not in repr(find_place(None, {}))


@pytest.mark.parametrize("url", ["sqlite:/a:b@c", "redis://host:6379/0", "redis://user@host", "x://h?sslkey=/path"])
def test_what_is_no_password_does_not_warn(here: Path, url: str) -> None:
    """SEC16: ports, user names and paths are no secrets."""
    assert find_place(url, {}).warnings == ()


def test_the_state_directory_of_the_user(here: Path) -> None:
    """8: `XDG_STATE_HOME` counts if it is absolute; without HOME (cron, containers) the password database does."""
    assert find_place(None, {"HOME": "/h", "XDG_STATE_HOME": "/s p"}).url == "sqlite:/s%20p/leased/locks.db"
    assert find_place(None, {"HOME": "/h", "XDG_STATE_HOME": "s"}).url == "sqlite:/h/.local/state/leased/locks.db"
    recorded = pwd.getpwuid(os.geteuid()).pw_dir
    assert find_place(None, {}).url == f"sqlite:{recorded}/.local/state/leased/locks.db"


def test_a_mac_keeps_state_elsewhere(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """8: on macOS the file is in the user's Library."""
    monkeypatch.setattr("sys.platform", "darwin")
    expected = "sqlite:/Users/u/Library/Application%20Support/leased/locks.db"
    assert find_place(None, {"HOME": "/Users/u"}).url == expected


def test_a_user_without_any_home_is_told_what_to_do(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """8: a user id that is in no database, without HOME, needs to name the store."""
    monkeypatch.setattr(os, "geteuid", lambda: 987654321)
    with pytest.raises(StoreNotUsable) as raised:
        find_place(None, {})
    assert raised.value.hint == "name a store: --url sqlite:/PATH/locks.db"


def test_a_working_directory_that_is_gone_is_no_problem(here: Path) -> None:
    """8: a deleted working directory holds no settings."""
    here.rmdir()
    assert find_place(None, {"HOME": "/home/u"}).named_by == "the default for this user"


def test_the_default_file_is_made_for_its_user_alone(cli: Cli) -> None:
    """8, SEC16: without any setting one host needs nothing; the directory and the file are the user's own."""
    environment = {name: value for name, value in cli.environment.items() if name != "LEASED_URL"}
    assert cli.run("run", "job", "--", "true", env=environment).returncode == 0
    file = cli.directory / ".local/state/leased/locks.db"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_state_directory_that_cannot_be_made_is_told(cli: Cli) -> None:
    """8: a home that is no directory is a clear error with a way out, not a traceback."""
    cli.path("home").touch()
    environment = {name: value for name, value in cli.environment.items() if name != "LEASED_URL"}
    done = cli.run("run", "job", "--", "true", env=environment | {"HOME": str(cli.path("home"))})
    assert done.returncode == UNAVAILABLE
    assert str(cli.path("home")) in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments", [["--url", "X", "status", "job"], ["status", "--url", "X", "job"], ["status", "job", "--url=X"]]
)
def test_the_option_stands_before_or_after_the_subcommand(cli: Cli, arguments: list[str]) -> None:
    """8: `--url` is understood in both places."""
    other = f"sqlite:{cli.path('other.db')}"
    done = cli.run(*(argument.replace("X", other) for argument in arguments))
    assert done.returncode == 0
    assert cli.path("other.db").exists()
    assert not cli.file.exists()


@pytest.mark.parametrize(
    ("url", "status", "words"),
    [
        ("locks.db", USAGE, "has no scheme"),
        ("nosuch:x", USAGE, "no store is known for the scheme 'nosuch'"),
        ("nats://localhost/a.b", USAGE, "'a.b' is no name of a bucket"),
        ("memory:", USAGE, "the memory store ends with this command"),
        ("sqlite:", USAGE, "needs the path of its file"),
    ],
)
def test_a_url_that_cannot_work_is_told(cli: Cli, url: str, status: int, words: str) -> None:
    """11: each kind of wrong URL has its sentence and its status."""
    done = cli.run("status", "job", "--url", url)
    assert done.returncode == status
    assert words in done.stderr


def test_a_default_store_that_cannot_be_written_is_not_the_only_one(cli: Cli) -> None:
    """11: whose home cannot be written is told how to name another store; who has named one is not."""
    del cli.environment["LEASED_URL"]
    cli.path("file").touch()
    done = cli.run("status", "job", env=cli.environment | {"HOME": str(cli.path("file"))})
    assert done.returncode == UNAVAILABLE
    assert done.stderr.endswith(", or name another store by --url or LEASED_URL\n")
    named = cli.run("status", "job", "--url", f"sqlite:{cli.path('file')}/locks.db")
    assert named.returncode == UNAVAILABLE
    assert "another store by" not in named.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["status", "job", "--timeout", "1ms"],
            "leased: timeout 1ms is outside 0.01 s to 300 s\nhint: choose one within",
        ),
        (["status", "job", "--timeout", "soon"], "leased: --timeout 'soon' is not a duration\nhint: write seconds"),
        (["acquire", "job", "--ttl", "x"], "leased: --ttl 'x' is not a duration\nhint: write seconds"),
        (["renew", "job", "--ttl", "x"], "leased: --ttl 'x' is not a duration\nhint: write seconds"),
        (
            ["run", "job", "--wait", "1 hour", "--", "true"],
            "leased: --wait '1 hour' is not a duration\nhint: write seconds",
        ),
        (
            ["run", "job", "--lock-delay", "-1", "--", "true"],
            "leased: --lock-delay '-1' is not a duration\nhint: write seconds",
        ),
        (
            ["release", "job"],
            "leased: this is not the text of a handle of this version\nhint: pass exactly what `leased",
        ),
        (["status", ""], "leased: the key is empty; 1 to 255 characters are allowed\n"),
    ],
)
def test_hints_are_for_the_shell(cli: Cli, arguments: list[str], told: str) -> None:
    """11: what is wrong is told with the option's name and in words that fit a command line, before a store is made."""
    done = cli.run(*arguments, input="{}")
    assert done.returncode == USAGE
    assert done.stderr.startswith(told)
    assert not [word for word in ("timedelta", "str(", "dump(", "shorten") if word in done.stderr]
    assert not cli.file.exists()


def test_the_timeout_bounds_every_call(cli: Cli) -> None:
    """8: --timeout limits how long a store that does not answer is waited for."""
    cli.run("run", "job", "--", "true")
    with cli.blocked_store():
        done = cli.run("acquire", "job", "--timeout", "300ms")
    assert done.returncode == UNAVAILABLE
    assert "stayed locked by others" in done.stderr
    assert cli.run("status", "job", "--timeout", "soon").returncode == USAGE
