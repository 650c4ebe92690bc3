"""Interrupting a blocking body at the end of its lease: an exception injected into its thread until the block exits."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeVar

_F = TypeVar("_F", bound="Callable[..., Any]")

_AGAIN_AFTER = 0.05
_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

_spared: set[CodeType] = set()


class BodyInterrupted(BaseException):
    """Injected into the thread of a body whose enforced lease has run out; no `except Exception` can swallow it."""


def spared(fn: _F) -> _F:
    """Mark a function that leaves blocks: a thread is not struck while it is in there."""
    _spared.add(fn.__code__)
    return fn


class Interrupter:
    """Strikes one thread, again and again, from `strike` until `leave`; never after `leave` has returned.

    The thread is struck only while the frame that entered the block is among its callers, and it is not leaving a
    block. A thread that does not run stands where its frame says, so the error is raised right there.
    """

    def __init__(self, entered_from: FrameType) -> None:
        self._thread_id = threading.get_ident()
        self._entered_from: FrameType | None = _body_of(entered_from)
        self._mutex = threading.Lock()
        self._left = threading.Event()
        self.struck = False

    def strike(self) -> None:
        """Begin to interrupt the thread; returns at once."""
        try:
            threading.Thread(target=self._strike, name="leased-enforce", daemon=True).start()
        except RuntimeError:  # no more threads just now: one strike is better than none
            self._strike_once()

    def leave(self) -> None:
        """The block exits: inject nothing more, and take back what was not delivered yet.

        In its own thread one more error is raised and caught for that. Only cleared, CPython before 3.13 would look for
        it for ever: it runs slower then, and hangs as soon as the thread is traced.
        """
        while True:
            try:
                with self._mutex:
                    self._left.set()
                    self._entered_from = None
                own = self._thread_id == threading.get_ident()
                if self.struck:
                    self.struck = False
                    _inject(self._thread_id, BodyInterrupted if own else None)
                return
            except BodyInterrupted:  # delivered while we were here: from now on none can follow
                continue

    def _strike(self) -> None:
        while self._strike_once():
            self._left.wait(_AGAIN_AFTER)

    def _strike_once(self) -> bool:
        """Whether to strike again, if the block is not left by then."""
        with self._mutex:
            inside = None if self._left.is_set() else self._inside()
            if inside:
                self.struck = True
                _inject(self._thread_id, BodyInterrupted)
        return inside is not None

    def _inside(self) -> bool | None:
        """Whether the thread is in the body now; `None` if it never will be again, for what ran it has ended."""
        body = self._entered_from
        frame = sys._current_frames().get(self._thread_id)
        is_spared, may_return = False, frame is not None and body is not None and body.f_code.co_flags & _SUSPENDS
        while frame is not None and frame is not body:
            is_spared = is_spared or frame.f_code in _spared
            frame = frame.f_back
        if frame is None:
            return False if may_return else None
        return not is_spared


def _body_of(frame: FrameType) -> FrameType:
    """The frame that runs the body of a block entered from this one: what `contextlib` makes of a generator, and its
    stacks, enter a block for their caller."""
    while frame.f_back is not None and (_of_contextlib(frame) or _makes_a_manager(frame)):
        frame = frame.f_back
    return frame


def _of_contextlib(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") == "contextlib"


def _makes_a_manager(frame: FrameType) -> bool:
    is_generator = bool(frame.f_code.co_flags & inspect.CO_GENERATOR)
    return is_generator and frame.f_back is not None and _of_contextlib(frame.f_back)


def _inject(thread_id: int, error: type[BaseException] | None) -> None:
    """Set, or with `None` clear, the exception that the thread raises at its next byte code."""
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread_id), ctypes.py_object(error) if error is not None else None
    )
