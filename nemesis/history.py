"""The lines that a run leaves behind: what workers asked and heard, and what was broken meanwhile. It judges nothing.

Every process appends to a file of its own, one JSON object a line, each with one `write`: what a killed process had
recorded is there. All times are those of one clock of this host, which counts suspend, so that lines of different
processes compare.

| what | by | meaning |
| --- | --- | --- |
| `invoke` | worker | a call begins; `call` says which, `op` names this one |
| `ok`, `fail`, `unknown` | worker | it ended: done, not done, or nobody knows |
| `sees` | worker | what a holder reads of its own handle: `lost`, and `until` when it believes |
| `told` | worker | an event of the library, for the hold that the lock's name says |
| `wrote` | worker | what the guarded resource made of a write |
| `born`, `stopped`, `continued`, `killed` | nemesis | of a worker's process |
| `fault`, `gone`, `healed` | nemesis | a server broken; the data that may be lost is out of reach; all well again |
| `store` | nemesis | what the URL that workers are given begins with |
| `end` | both | this file is complete |
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

What = Literal[
    "invoke",
    "ok",
    "fail",
    "unknown",
    "sees",
    "told",
    "wrote",
    "store",
    "born",
    "stopped",
    "continued",
    "killed",
    "fault",
    "gone",
    "healed",
    "end",
]


def now() -> float:
    """Seconds on the clock of this host that all lines of a run are written in."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class Line:
    """One line. `who` is the process it is about; `op` names a call or a fault, `hold` the call that got the hold."""

    at: float
    what: What
    who: str
    op: str = ""
    call: str = ""
    key: str = ""
    hold: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


class Recorder:
    """Appends the lines of one process. Any thread may record; a `with` statement closes the file at its end."""

    def __init__(self, path: Path, *, who: str) -> None:
        """Lines of this process, in this file."""
        self.who = who
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._mutex = threading.Lock()
        self._calls = 0

    def record(
        self,
        what: What,
        *,
        at: float | None = None,
        who: str = "",
        op: str = "",
        call: str = "",
        key: str = "",
        hold: str = "",
        **data: Any,
    ) -> float:
        """Append a line, and give its time: now, unless it is given."""
        at = now() if at is None else at
        line = {"at": at, "what": what, "who": who or self.who, "op": op, "call": call, "key": key, "hold": hold}
        text = json.dumps({**{name: value for name, value in line.items() if value != ""}, "data": data})
        os.write(self._file, text.encode() + b"\n")
        return at

    def new_op(self) -> str:
        """A name for a call or a fault that no other of the run has."""
        with self._mutex:
            self._calls += 1
            return f"{self.who}#{self._calls}"

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def __enter__(self) -> Recorder:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the file."""
        self.close()


def read(directory: Path) -> list[Line]:
    """The lines of all processes of a run, in the order of their times. A last line that was cut off is left out."""
    texts = [text for path in directory.glob("*.jsonl") for text in path.read_text().splitlines(keepends=True)]
    return sorted((Line(**json.loads(text)) for text in texts if text.endswith("\n")), key=lambda line: line.at)
