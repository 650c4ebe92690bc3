"""The command as a process group: held back, let go, signalled, ended to its last process. It knows of no lease.

Both processes are forked before there is any thread, lock or open store here: nothing of ours can reach the command,
and what it must do for itself (die with us) it has done before anybody asks for the lease. Signals are listened to
before: an exception in the middle of a fork would leave the mutexes of fork hooks locked for good.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from leased.cli.news import News

_PR_SET_PDEATHSIG = 1
_DONE = b"."


class Command:
    """A forked child, leader of its own process group, which becomes the command once it is told to.

    Until then it waits; if this process dies in between, it ends. On Linux it is killed when this process dies later.
    `started` says whether it became the command, `status` what `waitpid` said when it had ended (noted by whoever
    collects children).
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], *, news: News) -> None:
        go_read, self._go = os.pipe()
        self._report, report_write = os.pipe()
        parent = os.getpid()
        self.started = False
        self.status: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            news.leave()
            for descriptor in (self._go, self._report):
                os.close(descriptor)
            _become(command, environment, go=go_read, report=report_write, parent=parent)
        os.close(go_read)
        os.close(report_write)
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it has done so itself, or has ended
            os.setpgid(self.pid, self.pid)

    def go(self, fencing_token: int) -> OSError | None:
        """Start the command, which finds this number in its environment. The error, if it cannot be started."""
        with contextlib.suppress(BrokenPipeError):  # it was killed while it waited; its status will say so
            os.write(self._go, str(fencing_token).encode())
        os.close(self._go)
        problem = _read_all(self._report)
        os.close(self._report)
        self.started = not problem
        return OSError(int(problem), os.strerror(int(problem))) if problem else None

    def discard(self) -> None:
        """End the whole group, unless the command has ended: it is not wanted, or nobody watches over it any more."""
        if self.status is not None:
            return
        self.send(signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            _, self.status = os.waitpid(self.pid, 0)

    def send(self, number: int) -> None:
        """Send a signal to every process of the group; quietly, if none is left (or none that we may signal)."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def group_lives(self) -> bool:
        """Whether any process of the group still runs; dead ones that nobody has collected do not count."""
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return sys.platform != "linux" or any(
            _runs_in(self.pid, name) for name in os.listdir("/proc") if name.isdecimal()
        )


class Guard:
    """A forked process that kills a process group as soon as this process is gone without having said `done`.

    It has a session of its own, so that no signal of a terminal reaches it, and holds no descriptor of its starter.
    """

    def __init__(self, group: int, *, news: News) -> None:
        read, self._write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            news.leave()
            _watch(read, group)
        os.close(read)

    def done(self) -> None:
        """The group is no longer of interest: end the guard."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._write, _DONE)
        os.close(self._write)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def find_command(name: str, environment: Mapping[str, str]) -> OSError | None:
    """Why the command cannot be started, as far as that can be seen before trying; `None` if it looks well."""
    if "/" in name:
        return _why_not(name)
    problem: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for directory in os.get_exec_path(environment):
        found = _why_not(os.path.join(directory, name))  # an empty directory stands for the current one
        if found is None:
            return None
        if found.errno == errno.EACCES:
            problem = found
    return problem


def how_to_start(name: str, problem: OSError) -> str | None:
    """What may help against that error: another way to name the command, or what its file lacks."""
    file = os.path.isfile(name)
    if " " in name and not file:
        return f"there is no shell between: write the words without quotes, or sh -c {shlex.quote(name)}"
    if problem.errno == errno.ENOEXEC:
        return "a script begins with a line such as #!/bin/sh; or name its interpreter before it"
    if os.path.isdir(name):
        return "it is a directory"
    if problem.errno == errno.EACCES and file:
        return f"chmod +x {shlex.quote(name)}, or name its interpreter before it"
    if problem.errno == errno.ENOENT and file:
        if "/" not in name:
            return f"write ./{name} for the file in this directory"
        return "the interpreter in the first line of the file is not there"
    return None


def _why_not(path: str) -> OSError | None:
    """The error that starting this file would meet: missing, a directory, or not executable."""
    code = 0
    if not os.path.exists(path):
        code = errno.ENOENT
    elif os.path.isdir(path) or not os.access(path, os.X_OK):
        code = errno.EACCES
    return OSError(code, os.strerror(code)) if code else None


def _become(command: Sequence[str], environment: Mapping[str, str], *, go: int, report: int, parent: int) -> NoReturn:
    """In the child: wait for the word, then become the command. It never returns, whatever happens."""
    try:
        os.setpgid(0, 0)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these two; the command must not inherit that
            signal.signal(number, signal.SIG_DFL)
        _linux_prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)
        fencing_token = _read_all(go)
        if fencing_token:
            os.execvpe(  # noqa: S606  # that there is no shell is the point
                command[0], list(command), {**environment, "LEASED_FENCING_TOKEN": fencing_token}
            )
    except OSError as error:
        with contextlib.suppress(OSError):
            os.write(report, str(error.errno or errno.EINVAL).encode())
    finally:
        os._exit(0)


def _watch(read: int, group: int) -> NoReturn:
    """In the guard: wait until the other end is closed; without a `done` before, kill the group."""
    try:
        os.setsid()
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):  # whoever stops a whole service stops it last
            signal.signal(number, signal.SIG_IGN)
        os.dup2(read, 0)
        for name in os.listdir("/dev/fd"):  # the limit of descriptors can be a billion: no range
            with contextlib.suppress(OSError):
                if int(name) > 0:
                    os.close(int(name))
        if os.read(0, 1) != _DONE:
            os.killpg(group, signal.SIGKILL)
    finally:
        os._exit(0)


def _read_all(descriptor: int) -> str:
    """Everything up to the end of a pipe, as text."""
    parts = []
    while part := os.read(descriptor, 4096):
        parts.append(part)
    return b"".join(parts).decode()


def _linux_prctl(option: int, value: int) -> None:
    """Linux's `prctl`; elsewhere, and where Python was built without ctypes, nothing (the guard is still there)."""
    if sys.platform != "linux":
        return
    try:
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        return


def _runs_in(group: int, process: str) -> bool:
    """Whether this entry of `/proc` is a process of the group that has not ended yet."""
    try:
        with open(f"/proc/{process}/stat", errors="replace") as stat:
            state, _parent, its_group = stat.read().rpartition(")")[2].split()[:3]
    except (OSError, ValueError):
        return False
    return int(its_group) == group and state not in "ZX"
