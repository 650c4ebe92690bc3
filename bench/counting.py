"""What work costs without a clock: byte codes, calls and bytes, the same on a busy machine as on an idle one."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Steps:
    """The byte codes that were executed and the Python functions that were entered, for each function."""

    codes: Counter[str]
    calls: Counter[str]

    @property
    def total(self) -> int:
        """All byte codes."""
        return self.codes.total()


def steps(work: Work) -> Steps:
    """Do the work and count what this thread executes meanwhile. Functions are named by module and qualified name."""
    codes: Counter[CodeType] = Counter()
    calls: Counter[CodeType] = Counter()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if event == "call":
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
            calls[frame.f_code] += 1
        elif event == "opcode":
            codes[frame.f_code] += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    codes.pop(steps.__code__, None)
    return Steps(_named(codes), _named(calls))


def _named(counts: Counter[CodeType]) -> Counter[str]:
    named: Counter[str] = Counter()
    for code, number in counts.items():
        named[name_of(code)] += number
    return named


def name_of(code: CodeType) -> str:
    """Where a function is defined and what it is called."""
    if code.co_filename == "<string>":
        return f"dataclasses.{code.co_name}"
    path = Path(code.co_filename)
    parts = path.with_suffix("").parts
    for root in ("leased", "bench", "site-packages"):
        if root in parts:
            at = len(parts) - 1 - parts[::-1].index(root)
            return ".".join((*parts[at + (root == "site-packages") :], code.co_qualname))
    return f"{path.stem}.{code.co_qualname}"


def most_bytes(work: Work) -> int:
    """How many bytes more than before are allocated at the most, at some moment of the work."""
    gc.collect()
    collecting = gc.isenabled()
    gc.disable()
    tracemalloc.start()
    try:
        work()  # what is made once is not counted
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        work()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
        if collecting:
            gc.enable()


def bytes_kept(make: Callable[[int], object], *, count: int) -> float:
    """How many bytes are kept after each of so many calls, which get a number each."""
    make(-1)  # what is made once is not counted
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(count):
            make(number)
        gc.collect()
        return (tracemalloc.get_traced_memory()[0] - before) / count
    finally:
        tracemalloc.stop()
