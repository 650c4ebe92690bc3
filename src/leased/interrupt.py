"""Interrupting a blocking body at the end of its lease: an exception injected into its thread until the block exits."""

from __future__ import annotations

import sys
import threading
from types import FrameType

_AGAIN_AFTER = 0.05


class BodyInterrupted(BaseException):
    """Injected into the thread of a body whose enforced lease has run out; no `except Exception` can swallow it."""


class Interrupter:
    """Strikes one thread, again and again, from `strike` until `leave`; never after `leave` has returned."""

    def __init__(self, entered_from: FrameType) -> None:
        self._thread_id = threading.get_ident()
        self._entered_from: FrameType | None = entered_from
        self._mutex = threading.Lock()
        self._left = threading.Event()
        self.struck = False

    def strike(self) -> None:
        """Begin to interrupt the thread; returns at once."""
        threading.Thread(target=self._strike, name="leased-enforce", daemon=True).start()

    def leave(self) -> None:
        """The block exits: inject nothing more, and take back what was not delivered yet."""
        while True:
            try:
                with self._mutex:
                    self._left.set()
                    self._entered_from = None
                    if self.struck:
                        _inject(self._thread_id, None)
                return
            except BodyInterrupted:  # delivered while we were here: from now on none can follow
                continue

    def _strike(self) -> None:
        while True:
            with self._mutex:
                if self._left.is_set() or not self._inside():
                    return
                self.struck = True
                _inject(self._thread_id, BodyInterrupted)
            self._left.wait(_AGAIN_AFTER)

    def _inside(self) -> bool:
        """Whether the frame that entered the block still runs: a strike that came as the block was being left may have
        carried the thread past it."""
        frame = sys._current_frames().get(self._thread_id)
        while frame is not None and frame is not self._entered_from:
            frame = frame.f_back
        return frame is not None


def _inject(thread_id: int, error: type[BaseException] | None) -> None:
    """Set, or with `None` clear, the exception that the thread raises at its next byte code."""
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread_id), ctypes.py_object(error) if error is not None else None
    )
