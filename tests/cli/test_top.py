"""`leased top` in real terminals and in pipes, over SQLite, Redis and the service."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import leased
from tests.cli.driving import LEASED, UNAVAILABLE, USAGE, Cli, eventually, processes
from tests.cli.terminal import Terminal
from tests.cli.tmux import READY, Tmux
from tests.servers.process import Server

HOSTILE = "a\u202eb<script>alert('x')</script>\u200f\u2028\U000e0041"
TOP = f"{shlex.join(LEASED)} top --interval 0.2"

pytestmark = pytest.mark.skipif(
    shutil.which("tmux") is None and not os.environ.get("CI"), reason="tmux is not installed"
)


@pytest.fixture
def window(cli: Cli) -> Iterator[Callable[..., Tmux]]:
    """Opens shells in terminals; they are ended afterwards."""
    opened: list[Tmux] = []

    def open_one(*, width: int = 100, height: int = 20, **environment: str) -> Tmux:
        directory = cli.path(f"window-{len(opened)}")
        directory.mkdir()
        opened.append(Tmux(directory, environment=cli.environment | environment, width=width, height=height))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.mark.parametrize("kind", ["sqlite", "redis", "service"])
def test_it_shows_who_holds_what_and_frees_it(
    cli: Cli, window: Callable[..., Tmux], kind: str, request: pytest.FixtureRequest
) -> None:
    """C2, L7: live rows of every kind of store; a forced release of the row that was chosen, by its fencing token."""
    url = cli.url
    if kind != "sqlite":
        server: Server = request.getfixturevalue("valkey_server" if kind == "redis" else "service_server")
        url = f"{server.url}?leased_namespace=top-{os.getpid()}"
    with leased.connect(url) as locks:
        first = locks.lock("job:1", ttl=300, owner="run-1", metadata={"ticket": "A-1"}).acquire()
        second = locks.lock("job:2", ttl=300).acquire()
        terminal = window(LEASED_URL=url)
        terminal.line(TOP)
        shown = terminal.see("2 keys: 2 held")
        assert re.search(rf"^> job:1 +. held +run-1 +\S+ +{first.fencing_token} +(4m\d+s|5m) ", shown, re.MULTILINE)
        assert re.search(rf"^  job:2 +. held +- +\S+ +{second.fencing_token} ", shown, re.MULTILINE)
        third = locks.lock("job:3", ttl=300).acquire()
        terminal.see("^  job:3 ")
        assert third.renew(ttl=900)
        terminal.see(r"^  job:3 +\+ renewing .* 1( +0)?$")  # the service tells how many wait, too
        terminal.type("Enter")
        details = terminal.see("ticket +A-1")
        assert not re.search("waiting +0", details) or kind == "service"
        terminal.type("Escape", "j", "f")
        terminal.see(rf"Force release fencing token {second.fencing_token}\? \[y/N\]")
        assert locks.status("job:2").held
        terminal.type("y")
        terminal.see(rf"released 'job:2' by force \(fencing token {second.fencing_token}\)")
        terminal.see("2 keys: 1 renewing, 1 held")
        assert not locks.status("job:2").held
        terminal.type("q")
        terminal.see(f"{READY}-0$")
        assert first.release()
        assert third.release()
        assert not second.release()


def test_at_a_service_the_table_says_how_many_wait(
    cli: Cli, window: Callable[..., Tmux], service_server: Server
) -> None:
    """8, M11: of every key, without opening it."""
    url = f"{service_server.url}?leased_namespace=waiting-{os.getpid()}"
    with leased.connect(url) as locks, ThreadPoolExecutor() as pool:
        handle = locks.lock("job", ttl=300).acquire()
        waiting = pool.submit(lambda: locks.lock("job", ttl=300).acquire(wait=60).release())
        try:
            terminal = window(LEASED_URL=url)
            terminal.line(TOP)
            assert re.search("RENEWED +WAITING *$", terminal.see("^> job .* 1$"), re.MULTILINE)
        finally:
            handle.release()
        assert waiting.result(60)


def test_a_lease_that_came_after_the_question_is_not_ended(cli: Cli, window: Callable[..., Tmux]) -> None:
    """C093: the key changes hands while the question stands: the question is withdrawn, and a y then ends nothing."""
    cli.locks.lock("job", ttl=300).acquire().hand_over()
    terminal = window()
    terminal.line(TOP)
    terminal.see("^> job ")
    terminal.type("f")
    terminal.see(r"\[y/N\]")
    assert cli.locks.force_release("job")
    successor = cli.locks.lock("job", ttl=300).acquire()
    terminal.see(rf"'job' (is free now|now has fencing token {successor.fencing_token}): nothing was released")
    terminal.type("y")
    terminal.type("q")
    terminal.see(f"{READY}-0$")
    assert successor.release()


def test_what_was_typed_before_the_question_does_not_answer_it(cli: Cli, window: Callable[..., Tmux]) -> None:
    """C093: text that was pasted by mistake frees nothing, whatever letters are in it."""
    handle = cli.locks.lock("job", ttl=300).acquire()
    terminal = window()
    terminal.line(TOP)
    terminal.see("^> job ")
    terminal.paste("fyfy")
    terminal.see(r"\[y/N\]")
    terminal.type("n")
    terminal.see("nothing was released")
    assert handle.release()


def modes(terminal: Tmux) -> str:
    """The modes of the terminal, as the kernel has them."""
    tty = terminal.ask("#{pane_tty}")
    return subprocess.run(["stty", "-a", "-F", tty], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("way", ["q", "INT", "TERM", "HUP", "C-c"])
def test_the_terminal_is_as_it_was_however_it_ends(cli: Cli, window: Callable[..., Tmux], way: str) -> None:
    """8: the screen, the cursor and the modes of before are back, with the exit status of whatever ended it."""
    terminal = window()
    terminal.line("stty susp ^Y; echo before")
    terminal.see(f"^before\n{READY}-0$")
    # bash edits lines in modes of its own: what a program finds is what a program leaves.
    terminal.line(f"stty -a > {cli.path('before')}; {TOP}; echo ended $?; stty -a > {cli.path('after')}; echo and on")
    terminal.see("no key is held or closed")
    assert terminal.ask("#{alternate_on} #{cursor_flag}") == "1 0"
    assert "-icanon" in modes(terminal)
    if way in {"q", "C-c"}:
        terminal.type(way)
    else:
        (pid,) = [pid for pid in processes("--interval\x000.2") if Path(f"/proc/{pid}/cwd").resolve() == here(terminal)]
        os.kill(pid, signal.Signals[f"SIG{way}"])
    # A shell gives up the rest of a line after a program that Ctrl-C has ended, and this one has said that it has.
    status = {"q": 0, "INT": 130, "TERM": 143, "HUP": 129, "C-c": 130}[way]
    terminal.see(f"^ended {status}\nand on")
    assert "before" in terminal.screen()
    assert terminal.ask("#{alternate_on} #{cursor_flag}") == "0 1"
    assert cli.path("before").read_text() == cli.path("after").read_text()


def here(terminal: Tmux) -> Path:
    """The working directory of the shell."""
    return Path(terminal.ask("#{pane_current_path}")).resolve()


def test_ctrl_z_gives_the_shell_its_terminal_and_fg_goes_on(cli: Cli, window: Callable[..., Tmux]) -> None:
    """8: stopped, the shell's screen is back; continued, the view draws itself anew and hears keys."""
    cli.locks.lock("job", ttl=300).acquire().hand_over()
    terminal = window()
    terminal.line(TOP)
    terminal.see("^> job ")
    for _ in range(2):
        terminal.type("C-z")
        terminal.see(f"Stopped .*\n{READY}-148$")
        assert terminal.ask("#{alternate_on} #{cursor_flag}") == "0 1"
        terminal.line("fg")
        terminal.see("^> job ")
        assert terminal.ask("#{alternate_on} #{cursor_flag}") == "1 0"
    terminal.type("?")
    terminal.see("page up, page down")
    terminal.type("q", "q")
    terminal.see(f"{READY}-0$")


def test_it_follows_the_size_of_the_terminal(cli: Cli, window: Callable[..., Tmux]) -> None:
    """8: a smaller window shows fewer rows and columns at once, a larger one more; nothing of before is left over."""
    for number in range(30):
        cli.locks.lock(f"job:{number:02}", ttl=300, owner="run").acquire().hand_over()
    terminal = window(width=120, height=20)
    terminal.line(TOP)
    assert terminal.see("^  job:14 ").count("job:") == 15
    terminal.resize(width=52, height=9)
    narrow = eventually(lambda: fits(terminal, rows=4), "four rows fit")
    assert "OWNER" not in narrow
    assert all(len(line) <= 52 for line in narrow.splitlines())
    terminal.resize(width=140, height=40)
    wide = eventually(lambda: fits(terminal, rows=30), "all rows fit")
    assert "OWNER" in wide
    terminal.type("q")
    terminal.see(f"{READY}-0$")


def fits(terminal: Tmux, *, rows: int) -> str:
    """The screen, if it has that many rows, else nothing."""
    seen = terminal.screen()
    return seen if len(re.findall(r"^[> ] job:\d\d ", seen, re.MULTILINE)) == rows else ""


def test_a_store_that_does_not_answer_is_told_and_asked_again(
    cli: Cli, window: Callable[..., Tmux], private_valkey: Callable[..., Server]
) -> None:
    """8: the last rows stay, grey, under a line with the reason; keys work; the view is live again with the store."""
    server = private_valkey()
    with leased.connect(server.url) as locks:
        locks.lock("job", ttl=600).acquire().hand_over()
        terminal = window(LEASED_URL=server.url)
        terminal.line(f"{TOP} --timeout 0.5")
        terminal.see("^> job ")
        server.pause()
        stale = terminal.see("^! .*; what is shown was seen before; asking again")
        assert "> job" in stale
        assert "\x1b[2m" in terminal.screen(styles=True)
        terminal.type("?")
        terminal.see("page up, page down")
        terminal.type("q")
        server.resume()
        eventually(lambda: "asking again" not in terminal.see("^> job "), "the store is asked with success again")
        terminal.type("q")
        terminal.see(f"{READY}-0$")


def test_it_ends_although_the_store_does_not_answer(
    cli: Cli, window: Callable[..., Tmux], private_valkey: Callable[..., Server]
) -> None:
    """8: who wants to leave does not wait for a look that hangs."""
    server = private_valkey()
    terminal = window(LEASED_URL=server.url)
    terminal.line(f"{TOP} --timeout 60")
    terminal.see("no key is held or closed")
    server.pause()
    terminal.type("f", "s", "?")
    terminal.see("page up, page down")
    terminal.type("q", "q")
    terminal.see(f"{READY}-0$")
    server.resume()


def test_a_store_that_is_down_at_the_start_is_waited_for(
    cli: Cli, window: Callable[..., Tmux], private_valkey: Callable[..., Server]
) -> None:
    """8: what may work later is asked again; what can never work ends at once as with any other command."""
    server = private_valkey()
    server.stop()
    terminal = window(LEASED_URL=server.url)
    terminal.line(f"{TOP} --timeout 0.5")
    terminal.see("^! .*asking again")
    server.start()
    terminal.see("no key is held or closed")
    terminal.type("q")
    terminal.line(f"{TOP} --url redis://127.0.0.1:1/?leased_require=consensus --prefix $(printf '\\xff')")
    terminal.see(f"{READY}-({USAGE}|{UNAVAILABLE})$")


def test_hostile_text_reaches_no_terminal(cli: Cli, window: Callable[..., Tmux]) -> None:
    """C174: keys, owners and metadata that would steer a terminal are shown as text."""
    cli.locks.lock(
        HOSTILE, ttl=300, owner=HOSTILE, metadata={HOSTILE: "\x1b]0;title\x07\x1b[2J\u202e"}
    ).acquire().hand_over()
    terminal = window(width=160)
    terminal.line(TOP)
    assert "\\u202eb<script>" in terminal.see("^> a")
    terminal.type("Enter")
    details = terminal.see(r"\\x1b\]0;title\\x07\\x1b\[2J\\u202e")
    assert details.replace("\n", "").isprintable()
    assert terminal.ask("#{pane_title}") != "title"
    terminal.type("q", "q")


def test_columns_stand_where_they_belong_however_wide_a_terminal_takes_a_key_to_be(cli: Cli) -> None:
    """C174: terminals disagree about the width of some scripts; such a key moves no column of its row out of sight."""
    for key in ("plain", "क्षि" * 8, "각" * 5, "👩‍👩‍👧" * 5, "é" * 30):
        cli.locks.lock(key, ttl=300, owner=key).acquire().hand_over()
    terminal = Terminal(*LEASED, "top", environment=cli.environment | {"TERM": "xterm"}, directory=cli.directory)
    terminal.see("leased top")
    seen = terminal.see(r"j k move")
    assert len(places := re.findall(r"\x1b\[(\d+)G(?:\x1b\[\d*m)*  = held", seen)) == 5, seen
    assert len(set(places)) == 1
    terminal.type("q")
    assert terminal.finish() == 0
    terminal.close()


def test_a_key_that_stops_output_elsewhere_does_not_freeze_the_picture(cli: Cli) -> None:
    """8: Ctrl-S by mistake would leave a picture that looks alive and is not, and nothing would answer to q."""
    terminal = Terminal(
        *LEASED, "top", "--interval", "0.2", environment=cli.environment | {"TERM": "xterm"}, directory=cli.directory
    )
    terminal.see("no key is held or closed")
    terminal.type("\x13")
    cli.locks.lock("after", ttl=300).acquire().hand_over()
    terminal.see("> .*after")
    terminal.type("q")
    assert terminal.finish() == 0
    terminal.close()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_shows_little_shows_all_keys_in_ascii(cli: Cli, encoding: str) -> None:
    """C174: what its encoding does not have is written out before it is measured."""
    cli.locks.lock("é漢字", ttl=300, owner="ö").acquire().hand_over()
    more = {"TERM": "xterm", "PYTHONIOENCODING": encoding}
    terminal = Terminal(*LEASED, "top", environment=cli.environment | more, directory=cli.directory)
    seen = terminal.see("j k move")
    assert seen.isascii()
    assert "\\xe9\\u6f22\\u5b57" in seen
    assert "##########" in seen
    terminal.type("q")
    assert terminal.finish() == 0
    terminal.close()


@pytest.mark.parametrize("settings", [{}, {"NO_COLOR": "1"}])
def test_colours_are_for_those_who_want_them(cli: Cli, window: Callable[..., Tmux], settings: dict[str, str]) -> None:
    """8: NO_COLOR leaves words and signs."""
    cli.locks.lock("job", ttl=300, hold_at_least=300).acquire().release()
    terminal = window(**settings)
    terminal.line(TOP)
    terminal.see("x closed")
    assert ("\x1b[33m" in terminal.screen(styles=True)) is not bool(settings)
    terminal.type("q")


def test_in_a_pipe_it_is_the_list(cli: Cli) -> None:
    """8: programs get lines of JSON, as from `leased list`, and --once gives everybody one table."""
    handles = [cli.locks.lock(key, ttl=300, owner="run-1").acquire() for key in ("job:1", "job:2", "other")]
    lines = cli.run("top", "--prefix", "job:").stdout.splitlines()
    assert [json.loads(line)["key"] for line in lines] == ["job:1", "job:2"]
    assert json.loads(lines[0]).keys() == json.loads(cli.run("list").stdout.splitlines()[0]).keys()
    table = cli.run("top", "--once").stdout.splitlines()
    assert table[0].split() == ["KEY", "STATE", "OWNER", "HELD", "BY", "ENDS", "IN", "FENCING", "TOKEN"]
    assert [line.split()[0] for line in table[1:]] == ["job:1", "job:2", "other"]
    assert "\x1b" not in cli.run("top", "--once").stdout
    assert cli.run("top", "--once", "--json").stdout.count('"fencingToken":') == 3
    for handle in handles:
        handle.release()


def test_where_keys_cannot_be_read_it_prints_once(cli: Cli) -> None:
    """8: on a terminal that cannot move its cursor, and without one to read from, there is one table and an end."""
    cli.locks.lock("job", ttl=300).acquire().hand_over()
    for more in ({"TERM": "dumb"}, {"TERM": ""}):
        dumb = Terminal(*LEASED, "top", environment=cli.environment | more, directory=cli.directory)
        assert dumb.finish() == 0
        assert re.search(r"^job +held", dumb.screen, re.MULTILINE)
        dumb.close()
    blind = Terminal(
        "sh", "-c", f"{shlex.join(LEASED)} top < /dev/null", environment=cli.environment, directory=cli.directory
    )
    assert blind.finish() == 0
    assert re.search(r"^job +held", blind.screen, re.MULTILINE)
    blind.close()


def test_without_rich_it_says_what_to_do(cli: Cli) -> None:
    """8: the live view names what it needs; --once and pipes need nothing."""
    hide = "import sys; sys.modules['rich'] = None; from leased.cli import main; sys.exit(main(sys.argv[1:]))"
    program = [sys.executable, "-W", "error", "-c", hide]
    without = Terminal(*program, "top", environment=cli.environment, directory=cli.directory)
    assert without.finish() == UNAVAILABLE
    assert "the live view needs the package rich" in without.screen
    assert "hint: \x1b" not in without.screen
    assert "pip install 'leased[cli]', or pass --once" in without.screen
    without.close()
    once = Terminal(*program, "top", "--once", environment=cli.environment, directory=cli.directory)
    assert once.finish() == 0
    once.close()


def test_an_interval_that_would_flood_the_store_is_refused(cli: Cli) -> None:
    """11: the value, the limit, the next step."""
    for given in ("0.1", "0"):
        done = cli.run("top", "--interval", given)
        assert (done.returncode, f"--interval takes 0.2 s or more, not '{given}'" in done.stderr) == (USAGE, True)
    assert "90s, 1m30s or 250ms" in cli.run("top", "--interval", "often").stderr
