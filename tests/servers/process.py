"""A server as a process of its own: start, ask, stop, kill, pause. What each kind needs is in its `Recipe`.

Nothing outlives the tests: a guard beside every server waits for the end of this process, however it comes, and then
kills the server and removes its data.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.servers.accounts import own, spawn
from tests.servers.ports import HOST, Port

START_WITHIN = 60.0
STOP_WITHIN = 30.0
PORTS_TRIED = 5
ASK_FIRST = 0.03
ASK_EVERY = 0.01

# Its standard input is a pipe that we hold open: a line means the server is stopped, the end of it means we are dead.
GUARD = """
pid="$1"; shift
read -r line || { kill -s KILL "$pid" $(cat "/proc/$pid/task/$pid/children" 2>/dev/null); rm -rf -- "$@"; }
"""


class ServerFailed(Exception):
    """A server did not start or did not stop; the message ends with what it logged."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one server lives: its address, its data, and a second port for those that need one."""

    port: int
    second_port: int
    directory: Path
    account: str | None = None
    host: str = HOST

    @property
    def data(self) -> Path:
        """What `restart(keep_data=False)` throws away."""
        return self.directory / "data"

    @property
    def log(self) -> Path:
        """What the server and the programs that prepare its data say."""
        return self.directory / "log"

    def spawn(self, command: Sequence[str], *, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a program here, as the account of the server."""
        with self.log.open("ab") as log:
            return spawn(
                [*command],
                account=self.account,
                directory=self.directory,
                output=log,
                environment={**environment},
            )

    def run(self, *command: str) -> None:
        """Run a program here to its end; `ServerFailed` if it fails."""
        if code := self.spawn(command, environment={}).wait():
            raise ServerFailed(f"{command[0]} ended with code {code}; it said:\n{self.log.read_text(errors='replace')}")


def prepare_nothing(_: Place) -> None:
    """What to prepare where nothing has to be."""


def no_environment(_: Place) -> dict[str, str]:
    """What to add to the environment of a server that needs nothing in it."""
    return {}


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to run one kind of server. `answers` asks it: true once the process with this id serves at this place.

    `wall_clock` asks it for the time, in seconds since 1970.
    """

    kind: str
    command: Callable[[Place], Sequence[str]]
    url: Callable[[Place], str]
    wall_clock: Callable[[Place], float]
    answers: Callable[[Place, int], bool]
    prepare: Callable[[Place], None] = prepare_nothing
    account: str | None = None
    environment: Callable[[Place], Mapping[str, str]] = no_environment
    stop_signal: signal.Signals = signal.SIGTERM
    close_signal: signal.Signals = signal.SIGKILL


class Server:
    """One running server. Usable in a `with` statement, at whose end it is closed."""

    def __init__(self, recipe: Recipe) -> None:
        """Start it on a free port, with no data, and return when it answers."""
        self.recipe = recipe
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._ports = Port(), Port()
        parent = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        directory = Path(tempfile.mkdtemp(prefix=f"leased-{recipe.kind}-", dir=parent))
        self.place = Place(self._ports[0].number, self._ports[1].number, directory, recipe.account)
        own(directory, account=recipe.account)
        try:
            self._start_on_any_port()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """What `leased.connect` takes."""
        return self.recipe.url(self.place)

    @property
    def host(self) -> str:
        """The address it listens on."""
        return self.place.host

    @property
    def port(self) -> int:
        """The port it listens on; it stays the same when the server is started again."""
        return self.place.port

    @property
    def pid(self) -> int:
        """The id of its first process; `ServerFailed` while it is stopped."""
        if self._process is None:
            raise ServerFailed(f"{self.recipe.kind} is stopped")
        return self._process.pid

    def wall_clock(self) -> float:
        """What time it thinks it is, in seconds since 1970."""
        return self.recipe.wall_clock(self.place)

    @property
    def running(self) -> bool:
        """Whether its first process exists."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """All it has logged since it was created."""
        return self.place.log.read_text(errors="replace") if self.place.log.exists() else ""

    def start(self) -> None:
        """Start it where it was before; returns when it answers. Does nothing while it runs."""
        if self.running:
            return
        self._forget()
        self._process = self.place.spawn(
            self.recipe.command(self.place), environment=self.recipe.environment(self.place)
        )
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, "guard", str(self.pid), str(self.place.directory), *_shared_memory(self.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,  # or whoever reads what we write would wait for the guard as well
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._wait_until_it_answers(self._process)

    def stop(self) -> None:
        """Ask it to end and wait until it has. Does nothing while it is stopped."""
        self._end(self.recipe.stop_signal)

    def kill(self) -> None:
        """End it and all its processes at once, as a power cut would, and wait until they are gone."""
        if self.running:
            family = _family(self.pid)
            _signal(family, signal.SIGKILL)
            self._wait_for_the_end(family)
        self._forget()

    def restart(self, *, keep_data: bool = True) -> None:
        """Stop it and start it in the same place, with the data it had or with none."""
        self.stop()
        if not keep_data:
            self._prepare()
        self.start()

    def pause(self) -> None:
        """Stop all its processes where they are; connections stay open and nothing answers."""
        seen: set[int] = set()
        while fresh := set(_family(self.pid)) - seen:
            _signal(fresh, signal.SIGSTOP)
            _wait_until_stopped(fresh)
            seen |= fresh

    def resume(self) -> None:
        """Let it go on after `pause`."""
        _signal(_family(self.pid), signal.SIGCONT)

    def close(self) -> None:
        """End it and remove its data."""
        self._end(self.recipe.close_signal)
        shutil.rmtree(self.place.directory, ignore_errors=True)
        for port in self._ports:
            port.release()

    def __enter__(self) -> Server:
        """The server itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _prepare(self) -> None:
        shutil.rmtree(self.place.data, ignore_errors=True)
        self.place.data.mkdir(mode=0o700)
        own(self.place.data, account=self.recipe.account)
        self.recipe.prepare(self.place)

    def _start_on_any_port(self) -> None:
        for left in reversed(range(PORTS_TRIED)):
            self._prepare()
            try:
                return self.start()
            except ServerFailed:
                if not left or "in use" not in self.log:
                    raise
            for port in self._ports:
                port.release()
            self._ports = Port(), Port()
            numbers = [port.number for port in self._ports]
            self.place = Place(numbers[0], numbers[1], self.place.directory, self.recipe.account)
        return None

    def _end(self, number: signal.Signals) -> None:
        if self.running:
            self.resume()
            family = _family(self.pid)
            os.kill(self.pid, number)
            self._wait_for_the_end(family)
        self._forget()

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_WITHIN
        code = None
        # One that found its port taken is gone by the first question, which the other listener might not answer.
        wait = ASK_FIRST
        while code is None and time.monotonic() < deadline:
            try:
                code = process.wait(wait)
            except subprocess.TimeoutExpired:
                if self.recipe.answers(self.place, process.pid):
                    return
            wait = ASK_EVERY
        self.kill()
        ending = f"does not answer within {START_WITHIN} s" if code is None else f"ended with code {code}"
        raise ServerFailed(f"{self.recipe.kind} {ending}; it logged:\n{self.log}")

    def _wait_for_the_end(self, family: Sequence[int]) -> None:
        deadline = time.monotonic() + STOP_WITHIN
        assert self._process is not None
        try:
            self._process.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired:
            _signal(family, signal.SIGKILL)
            self._process.wait()
            raise ServerFailed(
                f"{self.recipe.kind} did not end within {STOP_WITHIN} s; it logged:\n{self.log}"
            ) from None
        for pid in family[1:]:
            _wait_until_gone(pid, deadline=deadline)

    def _forget(self) -> None:
        if self._process is not None:
            self._process.wait()
            for path in _shared_memory(self._process.pid):
                Path(path).unlink(missing_ok=True)
            self._process = None
        if self._guard is not None:
            self._guard.communicate(b"stopped\n")
            self._guard = None


def _shared_memory(pid: int) -> list[str]:
    """What a killed program that follows a `MovingClock` leaves behind, where it does."""
    return [f"/dev/shm/faketime_shm_{pid}", f"/dev/shm/sem.faketime_sem_{pid}"]


def _family(pid: int) -> list[int]:
    """A process and all that descend from it, the eldest first."""
    found = [pid]
    for parent in found:
        try:
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text()
        except OSError:
            continue
        found += [int(child) for child in children.split()]
    return found


def _signal(pids: Sequence[int] | set[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _wait_until_gone(pid: int, *, deadline: float) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise ServerFailed(f"process {pid} of a server that ended does not end")
    finally:
        os.close(descriptor)


def _wait_until_stopped(pids: set[int]) -> None:
    for pid in pids:
        deadline = time.monotonic() + STOP_WITHIN
        while _state(pid) not in "TZX" and time.monotonic() < deadline:
            os.sched_yield()


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"
