"""What integrations do with the functions that they are put around: fill in keys, and refuse what would run later."""

from __future__ import annotations

import inspect
import string
from collections.abc import Mapping
from typing import Any

from leased.checks import shown
from leased.errors import InvalidRequest


def filled_in(key: str, values: Mapping[str, Any], *, hint: str) -> str:
    """The key with its `{names}` filled in; raises `InvalidRequest` that says which values there are."""
    try:
        return string.Formatter().vformat(key, (), values)
    except (LookupError, AttributeError, TypeError, ValueError) as error:
        told = f"the key {shown(key)!r} cannot be filled in from {sorted(values)}: {error}"
        raise InvalidRequest(told, hint=hint) from None


def arguments_of(signature: inspect.Signature, *, args: Any, kwargs: Any) -> dict[str, Any]:
    """What a call is given, by name, with what is left out as its defaults."""
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def is_async(function: Any) -> bool:
    """Whether calling it gives a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(function.__call__)


def refuse_later(function: Any, *, may_await: bool = False) -> None:
    """Raise `InvalidRequest` for what does its work only after it has returned: the lease would be over by then."""
    forms = (function, function.__call__)
    generates = any(inspect.isgeneratorfunction(form) or inspect.isasyncgenfunction(form) for form in forms)
    if generates or (is_async(function) and not may_await):
        kind = "a generator" if generates else "a coroutine function"
        raise InvalidRequest(
            f"{getattr(function, '__qualname__', function)} is {kind}: it would run after the lease is over",
            hint="wrap it in a function that does its work before it returns",
        )


def refuse_unfinished(value: object) -> None:
    """Raise `InvalidRequest` for a value that is work still to be done; a coroutine is closed."""
    if inspect.iscoroutine(value):
        value.close()
    if inspect.isawaitable(value) or inspect.isgenerator(value) or inspect.isasyncgen(value):
        raise InvalidRequest(
            f"the call gave a {type(value).__name__}, whose work would be done after the lease is over",
            hint="use execute_async for what is awaited",
        )
