"""`leased status`, `list` and `force-release`: what anyone may see, harmlessly shown; forcing what was shown."""

import json
import re
import sqlite3

import pytest

from leased.policy import MAX_KEY_LENGTH
from tests.cli.driving import USAGE, Cli
from tests.cli.terminal import Terminal

HOSTILE = "a\u202eb<script>alert('x')</script>\u200f\u2028\U000e0041"


def on_terminal(cli: Cli, *arguments: str) -> Terminal:
    """The command on a terminal, without colours."""
    return Terminal(*cli.LEASED, *arguments, environment=cli.environment | {"NO_COLOR": "1"}, directory=cli.directory)


def test_status_of_a_held_key(cli: Cli) -> None:
    """M11: everything that anyone may see, in camelCase with milliseconds; never the token."""
    handle = cli.locks.lock("job", ttl=60, owner="run-1", metadata={"ticket": "A-1"}).acquire()
    seen = cli.data("status", "job")
    assert (seen["key"], seen["state"], seen["held"], seen["owner"]) == ("job", "held", True, "run-1")
    assert seen["fencingToken"] == handle.fencing_token
    assert 50_000 < seen["expiresInMs"] <= 60_000
    assert seen["expiresAt"].endswith("Z")
    assert seen["metadata"]["ticket"] == "A-1"
    assert handle.token not in json.dumps(seen)
    handle.release()


def test_status_of_a_free_key_is_no_failure(cli: Cli) -> None:
    """M11: `held` is false exactly when a claim would win now; asking is a success either way."""
    seen = cli.data("status", "job")
    assert (seen["state"], seen["held"], seen["owner"], seen["expiresInMs"]) == ("free", False, None, None)


def test_on_a_terminal_status_and_list_are_for_people(cli: Cli) -> None:
    """8: a table on a terminal, JSON with --json even there."""
    handle = cli.locks.lock("job", ttl=60, owner="run-1").acquire()
    table = on_terminal(cli, "list")
    assert table.finish() == 0
    head, line = table.screen.splitlines()
    assert head.split() == ["KEY", "STATE", "OWNER", "HELD", "BY", "ENDS", "IN", "FENCING", "TOKEN"]
    assert line.split()[:3] == ["job", "held", "run-1"]
    assert line.split()[-1] == str(handle.fencing_token)
    rows = on_terminal(cli, "status", "job")
    assert rows.finish() == 0
    assert "lease ends     in " in rows.screen
    data = on_terminal(cli, "status", "job", "--json")
    assert data.finish() == 0
    assert json.loads(data.screen)["key"] == "job"
    for terminal in (table, rows, data):
        terminal.close()
    handle.release()


def test_an_empty_list_says_so_to_people(cli: Cli) -> None:
    """8: what was looked for, and where; programs get no line for nothing."""
    for more, words in ([], "no key is held"), (["--prefix", "app:"], "no key that begins with 'app:' is held"):
        shown = on_terminal(cli, "list", *more)
        assert shown.finish() == 0
        assert f"leased: {words} or closed in sqlite:/" in " ".join(shown.screen.split())
        shown.close()
        done = cli.run("list", *more)
        assert (done.stdout, done.stderr) == ("", "")


def test_status_of_no_key_names_the_list(cli: Cli) -> None:
    """11: a key is needed, and there is another command for all of them."""
    done = cli.run("status")
    assert (done.returncode, "name the key" in done.stderr, "leased list" in done.stderr) == (USAGE, True, True)
    assert "the key is empty" in cli.run("status", "").stderr


def test_list_is_exact_about_prefixes(cli: Cli) -> None:
    """C145: keys that begin alike have nothing to do with each other, and a prefix is nothing but the beginning."""
    handles = {key: cli.locks.lock(key, ttl=60).acquire() for key in ["job", "job:1", "job:10", "jobs", "Job", "j%b"]}
    listed = {
        prefix: [json.loads(line)["key"] for line in cli.run("list", "--prefix", prefix).stdout.splitlines()]
        for prefix in ["job:", "job", "j%", "JOB", ""]
    }
    assert listed == {
        "job:": ["job:1", "job:10"],
        "job": ["job", "job:1", "job:10", "jobs"],
        "j%": ["j%b"],
        "JOB": [],
        "": ["Job", "j%b", "job", "job:1", "job:10", "jobs"],
    }
    assert handles["job:1"].release()
    assert cli.data("status", "job:10")["held"]
    for handle in handles.values():
        handle.release()


KEYS = ["a/b", "a%2Fb", "a b", "a?b#c", "..", ".", "ä", "%", "a;b", "a+b", " a ", "'\"", "$HOME", "日本", "😀"]


def test_keys_work_unchanged_everywhere(cli: Cli) -> None:
    """C147: whatever looks special in a URL, a path or a shell is a key like any other, from acquire to release."""
    handles = {key: cli.run("acquire", key).stdout for key in KEYS}
    listed = [json.loads(line)["key"] for line in cli.run("list").stdout.splitlines()]
    assert listed == sorted(KEYS, key=str.encode)
    for key, handle in handles.items():
        assert cli.data("status", key)["key"] == key
        assert cli.data("release", key, input=handle)["released"]
    assert cli.run("list").stdout == ""


@pytest.mark.parametrize("character", ["k", "ß", "字", "😀"])
def test_the_length_limit_is_in_characters(cli: Cli, character: str) -> None:
    """C152: one unit, whatever a character takes in bytes: 255 work, 256 are refused with the limit named."""
    longest = character * MAX_KEY_LENGTH
    assert cli.data("release", longest, input=cli.run("acquire", longest).stdout)["released"]
    refused = cli.run("acquire", longest + character)
    assert refused.returncode == USAGE
    assert "has 256 characters; 1 to 255 are allowed" in refused.stderr


def test_a_key_that_is_no_text_is_refused(cli: Cli) -> None:
    """S3: bytes that are no text, control characters and the empty key are refused, and shown escaped."""
    for key in (b"a\xff", b"a\x1b[31mb", b""):
        done = cli.run("status", key.decode(errors="surrogateescape"))
        assert done.returncode == USAGE
        assert done.stderr.isprintable() or done.stderr.rstrip("\n").replace("\n", "").isprintable()


def test_hostile_text_is_neutralised(cli: Cli) -> None:
    """C174: direction marks and other invisible characters of keys, owners and metadata reach no terminal."""
    handle = cli.locks.lock(HOSTILE, ttl=60, owner=HOSTILE, metadata={HOSTILE: "\x1b]0;title\x07\r\n\u202e"}).acquire()
    for arguments in (["list"], ["status", HOSTILE], ["acquire", HOSTILE], ["run", HOSTILE, "--", "true"]):
        terminal = on_terminal(cli, *arguments)
        terminal.finish()
        assert terminal.screen.replace("\r\n", "").isprintable(), ascii(terminal.screen)
        assert "\\u202e" in terminal.screen
        terminal.close()
        done = cli.run(*arguments)
        assert (done.stdout + done.stderr).replace("\n", "").isprintable()
    handle.release()


def test_colours_are_for_terminals_that_want_them(cli: Cli) -> None:
    """8: without NO_COLOR a terminal gets colours, a pipe never does."""
    colourful = Terminal(*cli.LEASED, "status", "job", environment=cli.environment, directory=cli.directory)
    assert colourful.finish() == 0
    assert "\x1b[1mkey" in colourful.screen
    plain = on_terminal(cli, "status", "job")
    assert plain.finish() == 0
    assert "\x1b" not in plain.screen
    assert "\x1b" not in cli.run("status", "job").stdout
    colourful.close()
    plain.close()


def test_force_release_shows_asks_and_releases(cli: Cli) -> None:
    """C093: it shows what it is about to end, asks, and ends exactly that."""
    handle = cli.locks.lock("job", ttl=60, owner="run-1").acquire()
    terminal = on_terminal(cli, "force-release", "job")
    shown = terminal.see(r"\[y/N\] ")
    assert f"'job' is held by {cli.locks.status('job').held_by}"[:40] in shown
    assert f"fencing token {handle.fencing_token}" in shown
    terminal.type("no\r")
    assert terminal.finish() == 1
    assert cli.held("job")
    terminal.close()
    terminal = on_terminal(cli, "force-release", "job")
    terminal.see(r"\[y/N\] ")
    terminal.type("y\r")
    assert terminal.finish() == 0
    told = terminal.screen.rpartition("[y/N] ")[2]
    assert re.search(r"force-released +job\r\n", told)
    assert re.search(r"was held by +\S+@", told)
    assert not re.search(r"^(state|held by|lease ends) ", told, re.MULTILINE)
    assert not cli.held("job")
    assert not handle.release()
    terminal.close()


def test_force_release_never_hits_the_successor(cli: Cli) -> None:
    """C093, SAFE10: what was not shown is not ended: a lease granted while the question stood stays."""
    cli.locks.lock("job", ttl=60).acquire().hand_over()
    terminal = on_terminal(cli, "force-release", "job")
    terminal.see(r"\[y/N\] ")
    assert cli.locks.force_release("job")
    successor = cli.locks.lock("job", ttl=60).acquire()
    terminal.type("y\r")
    assert terminal.finish() == 1
    assert "changed in the meantime: nothing was released" in terminal.screen
    assert successor.release()
    terminal.close()


def test_scripts_must_say_yes(cli: Cli) -> None:
    """C093: where nobody can be asked, --yes is needed; then it says what it removed."""
    handle = cli.locks.lock("job", ttl=60).acquire()
    refused = cli.run("force-release", "job")
    assert refused.returncode == USAGE
    assert "hint: pass --yes" in refused.stderr
    assert cli.held("job")
    removed = cli.data("force-release", "job", "--yes")
    assert removed["fencingToken"] == handle.fencing_token
    assert removed["forceReleased"] is True
    assert (removed["was"]["state"], removed["was"]["owner"]) == ("held", None)
    assert not {"state", "held"} & removed.keys()
    assert not cli.held("job")
    assert not handle.release()


def test_force_release_by_number(cli: Cli) -> None:
    """L7: with a fencing token it ends that lease or none; a free key is nothing to do."""
    handle = cli.locks.lock("job", ttl=60).acquire()
    other = cli.run("force-release", "job", "--yes", "--fencing-token", str(handle.fencing_token - 1))
    assert other.returncode == 1
    assert f"now has fencing token {handle.fencing_token}, not {handle.fencing_token - 1}" in other.stderr
    assert cli.held("job")
    assert cli.run("force-release", "job", "--yes", "--fencing-token", str(handle.fencing_token)).returncode == 0
    assert not cli.held("job")
    again = cli.run("force-release", "job", "--yes")
    assert (again.returncode, again.stdout) == (0, "")
    assert "is free: there is nothing to release" in again.stderr
    assert not handle.release()


def test_force_release_opens_a_closed_key(cli: Cli) -> None:
    """M10: a key that is kept closed opens."""
    cli.locks.lock("job", ttl=60, hold_at_least=60).acquire().release()
    assert cli.data("status", "job")["state"] == "closed"
    assert cli.data("force-release", "job", "--yes")["was"]["state"] == "closed"
    assert cli.data("status", "job")["state"] == "free"


@pytest.mark.parametrize("damage", ["metadata = '{'", "metadata = '[1]'", "held_by = ''"])
def test_a_damaged_record_can_be_removed(cli: Cli, damage: str) -> None:
    """C093: a record that is empty or truncated is shown as far as it can be read, and removed by its key."""
    handle = cli.locks.lock("job", ttl=60).acquire()
    change(cli, damage)
    assert cli.data("status", "job")["fencingToken"] == handle.fencing_token
    assert cli.data("force-release", "job", "--yes")["forceReleased"]
    assert not cli.held("job")
    assert not handle.release()


def change(cli: Cli, damage: str) -> None:
    """Damage what is recorded of the one key, from outside."""
    connection = sqlite3.connect(cli.file)
    table = connection.execute("SELECT name FROM sqlite_master WHERE sql LIKE '%metadata%'").fetchone()[0]
    with connection:
        assert connection.execute(f"UPDATE {table} SET {damage}").rowcount == 1
    connection.close()
