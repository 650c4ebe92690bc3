"""Interrupting this package at every point at which the interpreter may deliver a signal, one run for each point."""

from __future__ import annotations

import dis
import functools
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import leased

_PACKAGE = str(Path(leased.__file__).parent)
_CHECKED_AFTER = {"CALL", "CALL_FUNCTION_EX", "CALL_KW", "CALL_INTRINSIC_1", "JUMP_BACKWARD"}


class Interrupts:
    """Counts the points in a piece of work at which an interrupt may come, and raises one at the point asked for.

    CPython looks for signals as a function begins, after a call of something written in C, and as a loop goes round.
    What it does between two of these points is one step. Functions of the standard library may be interrupted at any
    point within: they count at their begin and end.
    """

    def __init__(
        self,
        error: type[BaseException] = KeyboardInterrupt,
        *,
        at: int = -1,
        unless: Callable[[], bool] = lambda: False,
    ) -> None:
        self.points = 0
        self.where = ""
        self.struck = False
        self._error = error
        self._unless = unless
        self._at = at
        self._opcodes: dict[FrameType, int] = {}
        self._python_calls: set[FrameType] = set()

    def run(self, work: Callable[[], Any]) -> Any:
        """What the work returns; the interrupt is raised in it, once."""
        before, collects = sys.gettrace(), gc.isenabled()
        gc.disable()  # what a collection calls is interrupted without effect, and without anybody being told
        sys.settrace(self._trace)
        try:
            return work()
        finally:
            sys.settrace(before)
            if collects:
                gc.enable()

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        ours = _is_ours(frame)
        called_by_us = not ours and frame.f_back is not None and _is_ours(frame.f_back)
        if not ours and not called_by_us:
            return None
        if frame.f_back is not None and not frame.f_code.co_name.startswith("__"):
            self._python_calls.add(frame.f_back)  # no signal is looked for as it returns
        if frame.f_code.co_name in ("__del__", "_remove", "remove", "<genexpr>"):  # what they raise may go nowhere
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = ours
        self._point(frame, "begin")
        return self._trace_ours if ours else self._trace_called

    def _trace_called(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "return":
            self._point(frame, "end")
        return self._trace_called

    def _trace_ours(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "opcode":
            code, here = frame.f_code.co_code, frame.f_lasti
            before = self._opcodes.get(frame)
            self._opcodes[frame] = here
            was_python = frame in self._python_calls
            self._python_calls.discard(frame)
            if (
                before is not None
                and not was_python
                and dis.opname[code[before]] in _CHECKED_AFTER
                and _handler(frame.f_code, before) == _handler(frame.f_code, here)
            ):  # else it would be raised outside of the handler that covers the call
                self._point(frame, "after a call")
        elif event == "return":
            self._opcodes.pop(frame, None)
        return self._trace_ours

    def _point(self, frame: FrameType, what: str) -> None:
        if self._unless():
            return
        point, self.points = self.points, self.points + 1
        if point == self._at:
            self.struck = True
            self.where = f"{what} of {Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"
            raise self._error


@functools.cache
def _handlers(code: CodeType) -> list[tuple[int, int, int]]:
    table = dis._parse_exception_table(code)  # type: ignore[attr-defined]  # there is no public way to read it
    return [(entry.start, entry.end, entry.target) for entry in table]


def _handler(code: CodeType, offset: int) -> int | None:
    """Where an exception that is raised by the instruction at this offset is handled within its function."""
    return next((target for start, end, target in _handlers(code) if start <= offset < end), None)


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_PACKAGE)


def every_interrupt(make_work: Callable[[], Callable[[], Any]], error: type[BaseException] = KeyboardInterrupt) -> Any:
    """One `Interrupts` for each point in the work; `make_work` makes it anew each time."""
    counting = Interrupts(error)
    counting.run(make_work())
    for at in range(counting.points):
        yield Interrupts(error, at=at)
