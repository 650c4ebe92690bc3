"""The controlling terminal of `leased run`: who is in its foreground, and stopping as a shell expects it."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
from typing import Any


class Terminal:
    """The terminal that this process was started from, if there is one; every call is harmless where there is none."""

    def __init__(self) -> None:
        self._own_group = os.getpgrp()
        self._modes: list[Any] | None = None
        self._handed_to: int | None = None
        try:
            self._descriptor: int | None = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
        except OSError:
            self._descriptor = None
            return
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # we take the terminal back while we are in the background
        import termios

        with contextlib.suppress(termios.error):
            self._modes = termios.tcgetattr(self._descriptor)

    @property
    def there(self) -> bool:
        """Whether there is one at all."""
        return self._descriptor is not None

    def hand_to(self, group: int) -> bool:
        """Put the group into the foreground, if our own is there now; whether it was."""
        if self._descriptor is None or self._foreground() != self._own_group:
            return False
        with contextlib.suppress(OSError):
            os.tcsetpgrp(self._descriptor, group)
            self._handed_to = group
            return True
        return False

    def take_back(self, *, restore_modes: bool) -> bool:
        """Put our own group into the foreground if whom we handed it to is still there; whether that was so."""
        if self._descriptor is None or self._handed_to is None:
            return False
        theirs = self._foreground() == self._handed_to
        self._handed_to = None
        if theirs:
            with contextlib.suppress(OSError):
                os.tcsetpgrp(self._descriptor, self._own_group)
            if restore_modes and self._modes is not None:
                import termios

                with contextlib.suppress(termios.error):
                    termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._modes)
        return theirs

    def _foreground(self) -> int | None:
        assert self._descriptor is not None  # noqa: S101  # for the type checker: callers have looked
        try:
            return os.tcgetpgrp(self._descriptor)
        except OSError:
            return None  # it was hung up


def wants_terminal() -> bool:
    """Whether the command should have the terminal from the start: it reads from it, and nobody reads its output.

    In a pipeline such as `leased run … | less` the other program needs it; a command that asks for it later still
    gets it, when the kernel stops it for asking.
    """
    try:
        return os.isatty(0) and not stat.S_ISFIFO(os.fstat(1).st_mode)
    except OSError:
        return False


def stop_own_group() -> None:
    """Stop this process and everything that a shell started together with it, as Ctrl-Z does; returns when continued.

    It returns at once where nobody could continue us: the kernel does not stop a group that no shell watches.
    """
    before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    os.killpg(os.getpgrp(), signal.SIGTSTP)
    signal.signal(signal.SIGTSTP, before)


def interrupt_own_group() -> None:
    """Let whoever was started together with us, such as the shell script we are in, see a Ctrl-C that only the command
    was sent, since it had the terminal. We end by it, too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.killpg(os.getpgrp(), signal.SIGINT)
