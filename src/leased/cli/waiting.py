"""Before the command runs: one thread asks for the key, signals end the wait. Nothing is left held behind it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from leased.cli.news import News
from leased.cli.output import printable, span
from leased.cli.streams import is_terminal, murmur
from leased.errors import LeasedError
from leased.policy import CLEANUP_BUDGET, POLL_MAX

if TYPE_CHECKING:
    from leased import Handle, Status

ENDS_WAIT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that end a wait. What else the command would be sent has nobody to go to yet."""

_QUIET = 0.3
"""Seconds of waiting that are not worth a word."""


class Interrupted(Exception):  # not an error: somebody wanted it
    """A signal ended the wait; the key is not held."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def obtain(ask: Callable[[threading.Event], Handle], *, news: News) -> Handle:
    """The handle that `ask` returns, or its error, or `Interrupted` if a signal came first.

    `ask` runs in a thread of its own and ends soon after its event was set; a grant that came anyway is handed back.
    Where the store does not answer, this returns after the clean-up budget: such a lease is not renewed.
    """
    cancelled = threading.Event()
    answers: list[Handle | BaseException] = []

    def run() -> None:
        try:
            answers.append(ask(cancelled))
        except BaseException as error:  # noqa: BLE001  # raised again below, by the thread that waits for it
            answers.append(error)
        news.poke()

    threading.Thread(target=run, name="leased-ask", daemon=True).start()
    interrupted: Interrupted | None = None
    give_up_at: float | None = None
    while not answers:
        for number in news.wait(None if give_up_at is None else give_up_at - time.monotonic()):
            if number in ENDS_WAIT and number not in news.ignored and interrupted is None:
                interrupted = Interrupted(number)
                cancelled.set()
                give_up_at = time.monotonic() + 2 * CLEANUP_BUDGET
        if interrupted is not None and give_up_at is not None and time.monotonic() >= give_up_at:
            break
    answer = answers[0] if answers else None
    if interrupted is not None:
        if answer is not None and not isinstance(answer, BaseException):
            answer.release()
        raise interrupted
    assert answer is not None  # noqa: S101  # the loop ends without an answer only when interrupted
    if isinstance(answer, BaseException):
        raise answer
    return answer


@contextlib.contextmanager
def watched(key: str, look: Callable[[], Status]) -> Iterator[None]:
    """While the block waits: a line on the terminal that says for whom and for how long. Elsewhere nothing."""
    if not is_terminal(sys.stderr) or os.environ.get("TERM") == "dumb":
        yield
        return
    over = threading.Event()
    teller = threading.Thread(target=_tell, args=(key, look, over), name="leased-tell", daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join(_QUIET)  # it may hang in a store that does not answer; then it says no more either


def _tell(key: str, look: Callable[[], Status], over: threading.Event) -> None:
    began, told, pause = time.monotonic(), False, _QUIET
    while not over.wait(pause):
        pause = POLL_MAX
        try:
            seen = holder_words(look())
        except LeasedError as error:
            seen = error.message
        line = f"leased: waiting for '{printable(key)}' ({span(time.monotonic() - began)}): {printable(seen)}"
        if not over.is_set():
            murmur(f"\r\x1b[K{line[: _width() - 1]}")
            told = True
    if told:
        murmur("\r\x1b[K")


def _width() -> int:
    try:
        return os.get_terminal_size(2).columns or 80
    except OSError:
        return 80


def holder_words(status: Status) -> str:
    """Who has the key, with owner and the time left, in a phrase that can follow "it is"."""
    if status.state == "free":
        return "free"
    if status.state == "closed":
        return f"closed for another {span(status.free_in)}" if status.free_in is not None else "closed for a while"
    words = f"held by {status.held_by or 'somebody'}"
    if status.owner is not None:
        words += f" (owner {status.owner!r})"
    if status.expires_in is not None:
        words += f", and its lease ends in {span(status.expires_in)} unless renewed"
    return words
