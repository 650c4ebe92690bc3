"""Asks the store for the live view, in threads of its own, so that one that does not answer holds up no key. It decides
nothing."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from leased.cli.top_view import Look, Release
from leased.errors import LeasedError
from leased.policy import MAX_LIST_PAGE

if TYPE_CHECKING:
    from leased import Locks

MOST = 10_000
"""Keys that are looked at: more are no picture for people, and each look costs the store a page for a thousand."""


_A_PAGE = 0.5
"""Seconds between two looks for each page that one takes: each is a request that a lock service counts."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The store gave no list, and why."""

    message: str


@dataclass(frozen=True, slots=True)
class Told:
    """A line for people: what came of a release, or what the library has to say."""

    message: str


Answer: TypeAlias = Look | Failed | Told | BaseException
"""What comes back. An exception is a fault of ours, to be raised by whoever reads it."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be asked: for the keys of this prefix, for one key in full as well, or for nothing while `paused`."""

    prefix: str = ""
    detail: str | None = None
    paused: bool = False


def look(locks: Locks, question: Question) -> Look:
    """Ask once. Raises what the store raises."""
    found = locks.list(question.prefix, limit=MOST + 1)
    detail = None if question.detail is None else locks.status(question.detail)
    return Look(question.prefix, tuple(found[:MOST]), time.monotonic(), more=len(found) > MOST, detail=detail)


class Looking:
    """Looks again and again, with `interval` seconds between an answer and the next question, or as long as the store
    wants (a limit of requests). `poke` is called for each answer; `question` is what is asked."""

    def __init__(self, locks: Locks, question: Question, *, interval: float, poke: Callable[[], None]) -> None:
        self._locks = locks
        self.question = question
        self._interval = interval
        self._poke = poke
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._now = threading.Event()

    def start(self) -> None:
        """Begin to look; nothing waits for the thread at the end."""
        threading.Thread(target=self._go_on, name="leased-look", daemon=True).start()

    def ask(self, question: Question) -> None:
        """Ask this from now on, and at once."""
        self.question = question
        self._now.set()

    def release(self, wish: Release) -> None:
        """End the lease, if it is still there, and say what came of it."""
        threading.Thread(target=self._release, args=(wish,), name="leased-release", daemon=True).start()

    def tell(self, message: str) -> None:
        """Put a line among the answers."""
        self._answer(Told(message))

    def answers(self) -> list[Answer]:
        """What has come since this was called last."""
        found = []
        while not self._answers.empty():
            found.append(self._answers.get())
        return found

    def _answer(self, answer: Answer) -> None:
        self._answers.put(answer)
        self._poke()

    def _go_on(self) -> None:
        pause = self._interval  # the first look was somebody else's
        while True:
            self._now.wait(None if self.question.paused else pause)
            self._now.clear()
            question = self.question
            if question.paused:
                continue
            pause = self._interval
            try:
                found = look(self._locks, question)
                pause = max(pause, _A_PAGE * len(found.found) / MAX_LIST_PAGE)
                self._answer(found)
            except LeasedError as error:
                pause = max(pause, error.retry_after or 0.0)
                self._answer(Failed(error.message))
            except BaseException as error:  # noqa: BLE001  # raised again by whoever reads the answers
                self._answer(error)
                return

    def _release(self, wish: Release) -> None:
        try:
            done = self._locks.force_release(wish.key, fencing_token=wish.fencing_token)
        except LeasedError as error:
            self.tell(f"{wish.key!r} was not released: {error.message}")
        except BaseException as error:  # noqa: BLE001  # as above
            self._answer(error)
        else:
            self.tell(
                f"released {wish.key!r} by force (fencing token {wish.fencing_token})"
                if done
                else f"{wish.key!r} changed in the meantime: nothing was released"
            )
        self._now.set()
