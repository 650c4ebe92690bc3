"""`leased top`: the keys of a store as they change, on a terminal; elsewhere what `leased list` prints."""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from leased.checks import check_prefix
from leased.cli.by_key import show_list
from leased.cli.news import News
from leased.cli.output import Output
from leased.cli.session import Session
from leased.cli.streams import is_terminal, murmur
from leased.cli.terminal import stop_own_group
from leased.cli.top_looking import Failed, Looking, Question, Told, look
from leased.cli.top_picture import Frame, fit, picture
from leased.cli.top_screen import Screen
from leased.cli.top_view import Look, Release, View, failed, looked, press, told
from leased.errors import InvalidRequest, StoreNotUsable, StoreUnavailable
from leased.targets import hide_secrets

if TYPE_CHECKING:
    from leased import Locks

_INTERVAL, _LEAST_INTERVAL = 2.0, 0.2
_TICK = 0.5
"""Seconds after which bars are drawn anew: half of the second in which people count."""

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_HEARD = (*_ENDS, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)
_KEPT_LINES = 20


def top(session: Session) -> int:
    """Watch until somebody quits; or print once where nobody can watch, or that was asked for."""
    given = session.arguments
    check_prefix(given.prefix)
    interval = session.seconds("interval", otherwise=_INTERVAL)
    if interval < _LEAST_INTERVAL:
        raise InvalidRequest(f"--interval takes {_LEAST_INTERVAL} s or more, not {given.interval!r}")
    if given.once:
        return show_list(session, replace(session.output, json=given.json))
    if session.output.json or not _can_watch(session):
        return show_list(session, session.output)
    if find_spec("rich") is None:
        raise StoreNotUsable(
            "the live view needs the package rich",
            hint="pip install 'leased[cli]', or pass --once for one table without it",
        )
    place = session.place()
    talk = _Talk()
    quiet = replace(session, output=Output(json=False, color=False))
    try:
        with contextlib.redirect_stderr(talk), quiet.locks(place) as locks:
            return _Watch(session, locks, interval=interval, place=hide_secrets(place.url), talk=talk).run()
    finally:
        murmur(talk.kept())


def _can_watch(session: Session) -> bool:
    """Whether keys can be read and lines can be drawn over."""
    able = session.environment.get("TERM", "") not in {"", "dumb"}
    return able and is_terminal(sys.stdin) and is_terminal(sys.stdout)


class _Talk(io.TextIOBase):
    """Standard error while the screen is ours: lines go to where they are shown, and are kept for afterwards."""

    def __init__(self) -> None:
        self.hear: Callable[[str], None] | None = None
        self._lines: list[str] = []
        self._begun = ""

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, text: str) -> int:
        """Take text, line by line."""
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._lines = [*self._lines[-_KEPT_LINES:], line]
            if self.hear is not None:
                self.hear(line)
        return len(text)

    def kept(self) -> str:
        """The last lines."""
        return "".join(f"{line}\n" for line in self._lines)


class _Watch:
    """One live view: the terminal, the threads that ask the store, and what is known, in one loop."""

    def __init__(self, session: Session, locks: Locks, *, interval: float, place: str, talk: _Talk) -> None:
        self._locks = locks
        self._place = place
        self._interval = interval
        self._view = View(prefix=session.arguments.prefix)
        self._news = News()
        self._looking = Looking(locks, _question(self._view), interval=interval, poke=self._news.poke)
        self._screen = Screen(session.environment, color=session.output.color)
        self._talk = talk

    def run(self) -> int:
        """Look once, so that what can never work is an error; then watch. The terminal is given back in any case."""
        try:
            self._take(look(self._locks, _question(self._view)))
        except StoreUnavailable as error:
            if not error.retryable:
                raise
            self._take(Failed(error.message))
        self._talk.hear = self._looking.tell
        self._news.listen(_HEARD)
        self._looking.start()
        try:
            self._screen.enter()
            return self._watch()
        finally:
            self._screen.leave()
            self._news.leave()

    def _watch(self) -> int:
        while True:
            self._draw()
            for number in self._news.wait(min(_TICK, self._interval), beside=self._screen.descriptor):
                if number in _ENDS and number not in self._news.ignored:
                    return 128 + number
                if number == signal.SIGTSTP and number not in self._news.ignored:
                    self._stop()
                if number == signal.SIGCONT:
                    self._screen.enter()
            for answer in self._looking.answers():
                if isinstance(answer, BaseException):
                    raise answer
                self._take(answer)
            if self._press(self._screen.keys()):
                return 0
            self._ask()

    def _take(self, answer: Look | Failed | Told) -> None:
        match answer:
            case Look():
                self._view = looked(self._view, answer)
            case Failed(message):
                self._view = failed(self._view, message)
            case Told(message):
                self._view = told(self._view, message)

    def _press(self, keys: list[str]) -> bool:
        """Whether the keys end the view. What was typed ahead of a question is no answer to it."""
        for key in keys:
            before = self._view.mode
            self._view, wish = press(fit(self._view, self._frame()), key, now=time.monotonic())
            if wish == "quit":
                return True
            if wish == "redraw":
                self._screen.enter()
            elif isinstance(wish, Release):
                self._looking.release(wish)
            if self._view.mode == "confirm" != before:
                break
        return False

    def _ask(self) -> None:
        """Let the store be asked for what the view is about now."""
        question = _question(self._view)
        if question != self._looking.question:
            self._looking.ask(question)

    def _draw(self) -> None:
        frame = self._frame()
        self._view = fit(self._view, frame)
        self._screen.draw(picture(self._view, frame))

    def _frame(self) -> Frame:
        width, height = self._screen.size()
        return Frame(width, height, time.monotonic(), self._place, self._interval, self._screen.fine)

    def _stop(self) -> None:
        """As Ctrl-Z does with any program: the shell gets its terminal, and `fg` gives it back to us."""
        self._screen.leave()
        stop_own_group()
        self._screen.enter()


def _question(view: View) -> Question:
    key = None if view.subject is None else view.subject.seen.key
    return Question(view.prefix, key, paused=view.paused_at is not None)
