"""Signals and news from threads as bytes of one pipe, so that one loop can wait for all. It acts on none of them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterable
from types import FrameType

NEWS = 0
"""What `poke` sends; every other byte is the number of a signal."""

_ROOM = 4096


class News:
    """Collects signals of this process, and calls of `poke`, until somebody waits for them. Made by the main thread.

    A signal that was ignored when `listen` began is in `ignored`: whoever started us wanted it without effect.
    """

    def __init__(self) -> None:
        self.ignored: set[int] = set()
        self._listened: set[int] = set()
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def listen(self, numbers: Iterable[int]) -> None:
        """From now on these signals do nothing but show up here."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in numbers:
            self._listened.add(number)
            if signal.signal(number, _noted) is signal.SIG_IGN:
                self.ignored.add(number)

    def leave(self) -> None:
        """In a forked child: every signal is again what it was for whoever started us."""
        for number in self._listened:
            signal.signal(number, signal.SIG_IGN if number in self.ignored else signal.SIG_DFL)
        signal.set_wakeup_fd(-1)

    def poke(self) -> None:
        """Wake whoever waits; from any thread."""
        with contextlib.suppress(BlockingIOError):  # full of news that nobody has read yet: the reader is due anyway
            os.write(self._write, bytes([NEWS]))

    def wait(self, seconds: float | None, *, beside: int | None = None) -> bytes:
        """What came in, in order, as soon as there is something; empty after so many seconds (`None`: for ever), and
        when the descriptor `beside` can be read."""
        watched = [self._read] if beside is None else [self._read, beside]
        if self._read not in select.select(watched, [], [], None if seconds is None else max(seconds, 0.0))[0]:
            return b""
        return os.read(self._read, _ROOM)


def _noted(_number: int, _frame: FrameType | None) -> None:
    """The wake-up descriptor has told already."""
