"""Puts the functions of a changed module into the running one, so that nothing has to be imported again."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType


def plant(module: ModuleType, source: str) -> int:
    """Give every function of the module the code that this source has for it; how many have changed."""
    codes = {
        code.co_qualname: code for code in _codes(compile(source, module.__file__ or "", "exec", dont_inherit=True))
    }
    changed = 0
    for function in _functions(module):
        new = codes.get(function.__qualname__)
        if new is not None and new != function.__code__:
            function.__code__ = new
            changed += 1
    return changed


def _codes(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _codes(inner)


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    """Those that are defined in this module, also as methods, properties and what is kept behind a cache."""
    for found in list(vars(module).values()):
        if isinstance(found, type) and found.__module__ == module.__name__:
            for inner in list(vars(found).values()):
                yield from _bare(inner, module)
        else:
            yield from _bare(found, module)


def _bare(found: object, module: ModuleType) -> Iterator[FunctionType]:
    if isinstance(found, property):
        for part in (found.fget, found.fset):
            yield from _bare(part, module)
        return
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    elif isinstance(found, functools.cached_property):
        found = found.func
    while not isinstance(found, FunctionType) and (inner := getattr(found, "__wrapped__", None)) is not None:
        found = inner
    if isinstance(found, FunctionType) and found.__module__ == module.__name__:
        yield from _bare(getattr(found, "__wrapped__", None), module)
        yield found
