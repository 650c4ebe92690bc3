"""A terminal with a shell or a command in it, for tests: types keys, waits for what appears. It judges nothing."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path

from tests.cli.driving import PATIENCE

# Makes the terminal on its standard input its controlling terminal, then becomes the program.
_ON_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    """A program on a pseudo-terminal of its own."""

    def __init__(self, *program: str, environment: Mapping[str, str], directory: Path) -> None:
        self._controller, terminal = pty.openpty()
        termios.tcsetwinsize(terminal, (24, 160))
        self.process = subprocess.Popen(
            [sys.executable, "-c", _ON_TERMINAL, *program],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=dict(environment),
            cwd=directory,
            start_new_session=True,
        )
        os.close(terminal)
        self._gone = False
        self.screen = ""

    def type(self, keys: str) -> None:
        """Type these keys."""
        os.write(self._controller, keys.encode())

    def see(self, pattern: str) -> str:
        """Wait until a pattern appears in what has not been seen yet; what came up to its end is seen then."""
        give_up_at = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.screen)):
            assert time.monotonic() < give_up_at, f"{pattern!r} did not appear in:\n{self.screen}"
            self._read(0.1)
        seen, self.screen = self.screen[: found.end()], self.screen[found.end() :]
        return seen

    def foreground(self) -> int:
        """The process group in the foreground."""
        return os.tcgetpgrp(self._controller)

    def finish(self) -> int:
        """Wait for the end of the program; its exit status. What it wrote last is on the screen."""
        status = self.process.wait(PATIENCE)
        while self._read(0.05):
            pass
        return status

    def hang_up(self) -> None:
        """Let the terminal go away."""
        os.close(self._controller)
        self._gone = True

    def close(self) -> None:
        """Hang up, and end the program if it is still there."""
        if not self._gone:
            self.hang_up()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._controller], [], [], seconds)[0]:
            return False
        try:
            text = os.read(self._controller, 65536).decode(errors="replace")
        except OSError:  # everybody on the other side has closed it
            return False
        self.screen += text
        return bool(text)
