"""Planting bugs: a function of the package runs with one piece of its source replaced, for as long as a block lasts."""

from __future__ import annotations

import importlib
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any


@dataclass(frozen=True, slots=True)
class Edit:
    """In `module`, the function at the dotted path `function` reads `new` where it has read `old`."""

    module: str
    function: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Bug:
    """A mistake that somebody could make, and the promise that it breaks first."""

    name: str
    promise: str
    edits: tuple[Edit, ...]


@contextmanager
def planted(bug: Bug | None) -> Iterator[None]:
    """Run the block with this bug in the code; raises `LookupError` if the source is not what the bug expects."""
    edits: dict[tuple[str, str], list[Edit]] = {}
    for edit in bug.edits if bug is not None else ():
        edits.setdefault((edit.module, edit.function), []).append(edit)
    changed: list[tuple[FunctionType, CodeType]] = []
    try:
        for (module, name), parts in edits.items():
            function = _function(module, name)
            changed.append((function, function.__code__))
            function.__code__ = _edited(function, tuple(parts))
        yield
    finally:
        for function, code in reversed(changed):
            function.__code__ = code


def _function(module: str, dotted: str) -> FunctionType:
    found: Any = importlib.import_module(module)
    for name in dotted.split("."):
        found = inspect.getattr_static(found, name, None)
    if isinstance(found, FunctionType):
        return found
    raise LookupError(f"{module}.{dotted} is not a plain function")


_edited_code: dict[tuple[CodeType, tuple[Edit, ...]], CodeType] = {}


def _edited(function: FunctionType, edits: tuple[Edit, ...]) -> CodeType:
    """The code of the function with the edits made."""
    place = (function.__code__, edits)
    if place not in _edited_code:
        text = textwrap.dedent(inspect.getsource(function))
        for edit in edits:
            if text.count(edit.old) != 1:
                raise LookupError(f"{edit.old!r} is not once, but {text.count(edit.old)} times, in {edit.function}")
            text = text.replace(edit.old, edit.new)
        scope: dict[str, Any] = {}
        code = compile(text, f"<{function.__qualname__}, edited>", "exec", flags=annotations.compiler_flag)
        exec(code, dict(function.__globals__), scope)  # noqa: S102 - our own source, changed by our own table
        _edited_code[place] = scope[function.__name__].__code__
    return _edited_code[place]
