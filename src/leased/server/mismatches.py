"""What is wrong with a body that does not fit its type: which member, what was sent, what is allowed. No more.

Only errors come here: the reader says where it stopped, and the body is looked at once more for what stands there.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import inspect

from leased.checks import shown
from leased.errors import InvalidRequest

_STEP = re.compile(r"\.([^.\[\]`]+)|\[(\d+)\]")
_SECRETS = frozenset({"token"})
_LONGEST_SHOWN = 80
_LONGEST_NUMBER = 4_300
"""Characters of a number that is read at all."""
_NOTHING = object()


@dataclass(frozen=True)
class _TooLarge:
    """A number that is not read."""

    text: str

    def __str__(self) -> str:
        whole = len(self.text) <= _LONGEST_SHOWN
        return self.text if whole else f"{self.text[:_LONGEST_SHOWN]}… ({len(self.text)} characters)"


def mismatch(kind: type[msgspec.Struct], body: bytes | bytearray, *, complaint: str) -> InvalidRequest:
    """The error for what msgspec complains of in a body of this type."""
    what, _, path = complaint.partition(" - at `$")
    path = path.partition("[...]")[0]  # which stands for a member of metadata
    steps = [name or int(number) for name, number in _STEP.findall(path.rstrip("`"))]
    found, sent = _walk(inspect.type_info(kind), _whole(body), steps)
    where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps).lstrip(".") or "the body"
    named = re.search(r"(missing required|unknown) field `(.*)`", what, re.DOTALL)
    large = _too_large(sent) if isinstance(sent, dict) else None
    if named is None and large is not None:
        allowed = f"numbers up to 1.7e308 with at most {_LONGEST_NUMBER} characters"
        return InvalidRequest(f"{where} has the number {large}; allowed are {allowed}", hint="send it as text")
    if named is None:
        code = _code(steps[-1] if steps else "", sent, found)
        last = next((step for step in reversed(steps) if isinstance(step, str)), "")
        return InvalidRequest(f"{where} is {_said(sent, last)}; allowed is {_allowed(found, last)}", code=code)
    member = named[2]
    if named[1] == "unknown":
        known = ", ".join(field.encode_name for field in found.fields) if hasattr(found, "fields") else "others"
        return InvalidRequest(f"{where} has the unknown member {shown(member)!r}", hint=f"known are {known}")
    needed, _ = _walk(found, _NOTHING, [member])
    return InvalidRequest(f"{where} lacks the member {member}, {_allowed(needed, member)}")


def _whole(body: bytes | bytearray) -> Any:
    """The body as far as it can be read at all; raises `InvalidRequest` if it is no JSON."""
    try:
        return json.loads(body, parse_int=_integer, parse_float=_fraction)
    except ValueError as error:
        raise InvalidRequest(f"the body is no JSON: {error}") from None
    except RecursionError:
        return _NOTHING


def _integer(text: str) -> int | _TooLarge:
    return int(text) if len(text) <= _LONGEST_NUMBER else _TooLarge(text)


def _fraction(text: str) -> float | _TooLarge:
    value = float(text)
    return _TooLarge(text) if math.isinf(value) else value


def _too_large(value: Any) -> _TooLarge | None:
    """A number in there that is not read."""
    rest = [value]
    while rest:
        one = rest.pop()
        if isinstance(one, _TooLarge):
            return one
        rest += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
    return None


def _walk(kind: Any, value: Any, steps: list[str | int]) -> tuple[Any, Any]:
    """The type that belongs at the end of these steps, and what was sent there."""
    for step in steps:
        kind = _bare(kind, value)
        if isinstance(kind, inspect.ListType):
            kind = kind.item_type
        elif isinstance(kind, inspect.StructType):
            tagged = step == kind.tag_field
            fields = {field.encode_name: field.type for field in kind.fields}
            kind = inspect.LiteralType((kind.tag,)) if tagged else fields.get(str(step))
        elif isinstance(kind, inspect.UnionType):
            kind = inspect.LiteralType(tuple(_tags(kind)))  # of operations, the one that names which it is
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            value = _NOTHING
    return _bare(kind, value), value


def _bare(kind: Any, value: Any) -> Any:
    """A type without what describes it; of several kinds of objects, the one that the value says it is."""
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType) and isinstance(value, dict):
        for one in kind.types:
            if isinstance(one, inspect.StructType) and one.tag_field and value.get(one.tag_field) == one.tag:
                return one
    return kind


def _tags(kind: inspect.UnionType) -> list[str]:
    return sorted(str(one.tag) for one in kind.types if isinstance(one, inspect.StructType))


def _code(member: str | int, sent: Any, kind: Any) -> str:
    if member == "key":
        return "LOCK_KEY_INVALID"
    beyond = type(sent) is int and isinstance(kind, inspect.IntType)
    return "LOCK_TTL_OUT_OF_RANGE" if member == "ttlMs" and beyond else "LOCK_INVALID_REQUEST"


def _said(sent: Any, member: str) -> str:
    """What was sent, short and on one line; of a secret only its length."""
    if sent is _NOTHING:
        return "something else"
    if isinstance(sent, dict):
        return "an object"
    if isinstance(sent, list):
        return f"a list of {len(sent)}"
    if isinstance(sent, str):
        if member in _SECRETS:
            return f"text of {len(sent)} characters"
        if not sent:
            return "empty text"
        return f"{shown(sent)!r}" + (f" ({len(sent)} characters)" if len(sent) > _LONGEST_SHOWN else "")
    if member in _SECRETS:
        return "no text"
    if isinstance(sent, _TooLarge):
        return str(sent)
    text = shown(json.dumps(sent))
    return f"{text} ({sent / 1000:.10g} s)" if type(sent) is int and member.endswith("Ms") and len(text) < 20 else text


def _allowed(kind: Any, member: str) -> str:
    """What a member may be, in words."""
    match kind:
        case inspect.IntType():
            return _numbers(kind, member)
        case inspect.StrType():
            return f"text{_span(kind.min_length, kind.max_length, 'characters')}"
        case inspect.BoolType():
            return "true or false"
        case inspect.NoneType():
            return "null"
        case inspect.LiteralType():
            return f"one of {', '.join(str(value) for value in kind.values)}"
        case inspect.ListType():
            return f"a list{_span(kind.min_length, kind.max_length, 'entries')}"
        case inspect.UnionType() if _tags(kind):
            return f"an object whose member operation is one of {', '.join(_tags(kind))}"
        case inspect.UnionType():
            return " or ".join(_allowed(_bare(one, None), member) for one in kind.types)
        case _:
            return "an object"


def _numbers(kind: inspect.IntType, member: str) -> str:
    least, most = kind.ge, kind.le
    if not member.endswith("Ms"):
        return f"a whole number from {least} to {most}"
    seconds = f"{(least or 0) / 1000:.10g} s to {(most or 0) / 1000:.10g} s"
    return f"a whole number of milliseconds from {least} to {most} ({seconds})"


def _span(least: int | None, most: int | None, what: str) -> str:
    return "" if most is None else f" of {least or 0} to {most} {what}"
