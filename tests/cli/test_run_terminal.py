"""`leased run` on a terminal: foreground, Ctrl-C, Ctrl-Z and fg, pipelines, and the terminal as it was afterwards."""

import os
import re
import shlex
import signal
import termios
import time
from collections.abc import Callable, Iterator

import pytest

from tests.cli.driving import BUSY, LEASED, LOST, Cli, eventually
from tests.cli.terminal import Terminal
from tests.cli.test_run_signals import group_members

Shell = Callable[[], Terminal]
RUN = shlex.join(LEASED) + " run job"
READY = "READY-"


@pytest.fixture
def terminals(cli: Cli) -> Iterator[Callable[..., Terminal]]:
    """Opens programs on terminals; they are hung up afterwards."""
    opened: list[Terminal] = []

    def on_terminal(*program: str) -> Terminal:
        opened.append(Terminal(*program, environment=cli.environment | {"NO_COLOR": "1"}, directory=cli.directory))
        return opened[-1]

    yield on_terminal
    for terminal in opened:
        terminal.close()


@pytest.fixture
def shell(terminals: Callable[..., Terminal], cli: Cli) -> Terminal:
    """An interactive shell with job control, at its prompt."""
    bash = terminals("bash", "--norc", "--noprofile", "-i")
    bash.type(f"PS1='{READY}''$? '; bind 'set enable-bracketed-paste off'\r")
    bash.see(f"{READY}0 ")
    return bash


def test_the_command_is_in_the_foreground_and_the_shell_again_afterwards(cli: Cli, shell: Terminal) -> None:
    """C1: the command can read from the terminal; when it has ended the terminal is the shell's, modes and all."""
    before = termios.tcgetattr(shell._controller)
    shell.type(f"{RUN} -- sh -c 'echo in $$; read -r line; echo got $line'\r")
    command = int(shell.see(r"in \d+").split()[-1])
    assert shell.foreground() == command
    shell.type("hello\r")
    shell.see("got hello")
    shell.see(f"{READY}0 ")
    assert shell.foreground() == shell.process.pid
    assert termios.tcgetattr(shell._controller) == before
    assert not cli.held("job")


def test_ctrl_c_goes_to_the_command_alone(cli: Cli, shell: Terminal) -> None:
    """C1: Ctrl-C reaches the command once, and the lease stands until it has ended."""
    script = cli.script(
        "job", "trap 'echo caught' INT; echo on; while [ ! -e $here/enough ]; do sleep 0.02; done; exit 7"
    )
    shell.type(f"{RUN} -- {script}\r")
    shell.see("on\r\n")
    shell.type("\x03")
    shell.see("caught")
    assert cli.held("job")
    cli.path("enough").touch()
    assert "caught" not in shell.see(f"{READY}7 ")


def test_ctrl_c_that_kills_gives_130(cli: Cli, shell: Terminal) -> None:
    """C158: a command that dies of Ctrl-C gives 130, and what it had started in the background ends as well."""
    shell.type(f"{RUN} -- sh -c 'sleep 100 & echo in $$; wait'\r")
    command = int(shell.see(r"in \d+").split()[-1])
    shell.type("\x03")
    shell.see(f"{READY}130 ")
    assert group_members(command) == []
    assert not cli.held("job")


def test_ctrl_c_ends_the_script_around_it_as_well(cli: Cli, shell: Terminal) -> None:
    """C1: a script that runs one job after the other is ended by Ctrl-C, as if its jobs had no groups of their own."""
    script = cli.script(
        "jobs", f"for job in 1 2 3; do {RUN} -- sh -c 'echo in $$; exec sleep 100'; done; echo survived"
    )
    shell.type(f"{script}\r")
    shell.see(r"in \d+")
    shell.type("\x03")
    assert "survived" not in shell.see(f"{READY}130 ")
    assert not cli.held("job")


def test_ctrl_z_stops_both_and_fg_goes_on(cli: Cli, shell: Terminal) -> None:
    """C1: Ctrl-Z gives the shell its prompt and says what becomes of the lease; fg goes on where it was."""
    shell.type(f"{RUN} --ttl 60 -- sh -c 'echo in $$; read -r line; echo got $line'\r")
    command = int(shell.see(r"in \d+").split()[-1])
    shell.type("\x1a")
    shell.see("leased: stopped; the lease ends in 5[0-9] s unless this goes on before")
    shell.see(f"{READY}1\\d\\d ")
    assert shell.foreground() == shell.process.pid
    shell.type("fg\r")
    eventually(lambda: shell.foreground() == command, "the command is in the foreground again")
    shell.type("hello\r")
    shell.see("got hello")
    shell.see(f"{READY}0 ")


def test_fg_after_the_lease_has_ended_does_not_go_on(cli: Cli, shell: Terminal) -> None:
    """C1: a run that was stopped past its ttl does not continue its command: it ends it and says so."""
    script = cli.script("job", "echo in $$; read -r line; touch $here/went-on")
    shell.type(f"{RUN} --ttl 0.6 -- {script}\r")
    command = int(shell.see(r"in \d+").split()[-1])
    shell.type("\x1a")
    shell.see(f"{READY}1\\d\\d ")
    eventually(lambda: not cli.held("job"), "the lease has run out")
    shell.type("fg\r")
    shell.see("it ran out before it was renewed")
    shell.see(f"{READY}{LOST} ")
    assert group_members(command) == []
    assert not cli.path("went-on").exists()


def test_in_the_background_the_command_runs_on_and_asks_for_the_terminal_as_any_job(cli: Cli, shell: Terminal) -> None:
    """C1: `&` works; a background command that reads is stopped with its wrapper, and fg gives it the terminal."""
    shell.type(f"{RUN} --ttl 60 -- sh -c 'echo in $$; read -r line; echo got $line' &\r")
    command = int(shell.see(r"in \d+").split()[-1])
    wrapper = int(re.findall(r"PPid:\s+(\d+)", cli_status(command))[0])
    for process in (command, wrapper):
        eventually(lambda pid=process: "(stopped)" in cli_status(pid), "it is stopped for reading")  # type: ignore[misc]
    shell.type("\r")
    shell.see(f"{READY}0 ")
    shell.type("fg\r")
    eventually(lambda: shell.foreground() == command, "the command is in the foreground")
    shell.type("hello\r")
    shell.see("got hello")
    shell.see(f"{READY}0 ")


def test_in_a_pipeline_the_other_program_keeps_the_terminal(cli: Cli, shell: Terminal) -> None:
    """C1: in `leased run … | pager` the pager can read keys, and Ctrl-C ends both."""
    pager = cli.script("pager", "read -r line; echo $line; read -r key < /dev/tty; echo key $key; cat")
    shell.type(f"{RUN} -- sh -c 'echo first; exec sleep 100' | {pager}\r")
    shell.see("first\r\n")
    shell.type("x\r")
    shell.see("key x")
    shell.type("\x03")
    shell.see(f"{READY}\\d+ ")
    eventually(lambda: not cli.held("job"), "the run has ended")


def test_without_a_shell_a_stopped_command_goes_on(cli: Cli, terminals: Callable[..., Terminal]) -> None:
    """C1: where no shell could continue it (the run is the terminal's only program), Ctrl-Z does not freeze it."""
    alone = terminals(*LEASED, "run", "job", "--", "sh", "-c", "echo on; read -r line; echo got $line")
    alone.see("on\r\n")
    alone.type("\x1a")
    alone.see("leased: stopped")
    alone.type("hello\r")
    alone.see("got hello")
    assert alone.finish() == 0


def test_hanging_up_ends_the_command(cli: Cli, terminals: Callable[..., Terminal]) -> None:
    """C155: when the terminal goes away, the command is told by HUP and the key is free."""
    alone = terminals(*LEASED, "run", "job", "--", "sh", "-c", "echo in $$; sleep 100")
    command = int(alone.see(r"in \d+").split()[-1])
    alone.hang_up()
    eventually(lambda: group_members(command) == [], "the command has ended")
    eventually(lambda: not cli.held("job"), "the key is free")


def test_a_killed_command_leaves_the_terminal_in_order(cli: Cli, shell: Terminal) -> None:
    """C1: terminal modes are as before when the command was killed while it had changed them."""
    before = termios.tcgetattr(shell._controller)
    shell.type(f"{RUN} -- sh -c 'stty -echo raw; echo in $$; sleep 100'\r")
    command = int(shell.see(r"in \d+").split()[-1])
    os.killpg(command, signal.SIGKILL)
    shell.see(f"{READY}137 ")
    assert termios.tcgetattr(shell._controller) == before


def test_while_it_waits_it_says_for_whom(cli: Cli, terminals: Callable[..., Terminal]) -> None:
    """C1: on a terminal one line tells who has the key, how long it has waited, and is gone afterwards."""
    handle = cli.locks.lock("job\u202egnp", ttl=60, owner="run-1").acquire()
    waiting = terminals(*LEASED, "run", "job\u202egnp", "--wait", "30", "--", "echo", "ran")
    holder = cli.locks.status("job\u202egnp").held_by
    line = waiting.see(r"waiting for 'job\\u202egnp' \([0-9.]+ s\): [^\r]*")
    assert f"held by {holder}"[:20] in line
    assert "\u202e" not in line
    handle.release()
    waiting.see("\r\x1b\\[K(?=ran)")
    assert waiting.finish() == 0


def test_ctrl_c_while_waiting_ends_the_wait(cli: Cli, shell: Terminal) -> None:
    """C007: Ctrl-C at a waiting run gives the prompt back soon, and nothing is taken."""
    handle = cli.locks.lock("job", ttl=60).acquire()
    shell.type(f"{RUN} --wait forever -- echo ran\r")
    shell.see("waiting for")
    shell.type("\x03")
    shell.see("interrupted: 'job' was not taken, the command did not run")
    shell.see(f"{READY}130 ")
    assert handle.release()
    assert not cli.held("job")


def test_busy_is_told_on_a_terminal_even_when_skipped(cli: Cli, terminals: Callable[..., Terminal]) -> None:
    """C160: who skips by hand still sees why nothing happened."""
    handle = cli.locks.lock("job", ttl=60).acquire()
    skipping = terminals(*LEASED, "run", "job", "--on-busy", "skip", "--", "echo", "ran")
    skipping.see("the command did not run: 'job' is held by")
    assert skipping.finish() == 0
    failing = terminals(*LEASED, "run", "job", "--", "echo", "ran")
    assert failing.finish() == BUSY
    handle.release()


def test_a_command_that_is_stopped_from_outside_is_waited_for(cli: Cli, shell: Terminal) -> None:
    """C1: STOP for the command alone does not stop the wrapper, which goes on renewing until CONT comes."""
    shell.type(f"{RUN} --ttl 1 -- sh -c 'echo in $$; read -r line; echo got $line'\r")
    command = int(shell.see(r"in \d+").split()[-1])
    os.kill(command, signal.SIGSTOP)
    shell.see("the command was stopped from outside and waits for CONT")
    granted = cli.locks.status("job").fencing_token
    began = time.monotonic()
    eventually(lambda: time.monotonic() - began > 1.5, "more than a ttl has passed")
    assert cli.locks.status("job").fencing_token == granted
    os.kill(command, signal.SIGCONT)
    shell.type("hello\r")
    shell.see("got hello")
    shell.see(f"{READY}0 ")


def test_ctrl_c_ends_a_command_that_is_stopped_from_outside(cli: Cli, shell: Terminal) -> None:
    """C1: nobody is left with a terminal on which nothing moves."""
    shell.type(f"{RUN} -- sh -c 'echo in $$; exec sleep 100'\r")
    command = int(shell.see(r"in \d+").split()[-1])
    os.kill(command, signal.SIGSTOP)
    shell.see("Ctrl-C ends it")
    shell.type("\x03")
    shell.see(f"{READY}130 ")
    assert not cli.held("job")


def cli_status(pid: int) -> str:
    """The state of a process, in words."""
    with open(f"/proc/{pid}/status") as file:
        return file.read()
