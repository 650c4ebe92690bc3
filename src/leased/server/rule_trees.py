"""Reads the compiled form of an access rule as a tree, so that it can be bounded; it compiles and runs nothing.

The form is a message of protocol buffers (`CheckedExpr` of the CEL specification inside an `Any`), of which only the
few fields that matter here are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

Shape = Literal["text", "truth", "number", "name", "call", "list", "other"]

_VALUE_IN_ANY, _EXPRESSION, _SOURCE = 2, 4, 5
_ID, _CONSTANT, _NAME, _SELECTION, _CALL, _LIST = 2, 3, 4, 5, 6, 7
_CONSTANTS: dict[int, Shape] = {2: "truth", 3: "number", 6: "text"}
_POSITIONS = 4
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_Field: TypeAlias = tuple[int, "int | bytes"]


class UnreadableTree(ValueError):
    """The library's compiled form is not what is known here: nothing can be said of its bounds."""


@dataclass(frozen=True, slots=True)
class Node:
    """One step of a rule. `text` is the value of a text, the name of a name, the function of a call.

    `offset` is where it stands in the source, in characters, or `None`. `inner` are the parts of a list, or the
    receiver (where there is one) and arguments of a call. What a rule may not hold has the shape "other".
    """

    shape: Shape
    text: str = ""
    inner: tuple[Node, ...] = ()
    offset: int | None = None

    def walk(self) -> Iterator[Node]:
        """This node and all below it."""
        ahead: list[Node] = [self]
        while ahead:
            node = ahead.pop()
            yield node
            ahead.extend(reversed(node.inner))

    def depth(self) -> int:
        """How many levels there are."""
        return 1 + max((node.depth() for node in self.inner), default=0)


def read_tree(serialized: bytes) -> Node:
    """The tree of a compiled rule. Raises `UnreadableTree` for what it does not know."""
    try:
        checked = dict(_fields(_bytes(dict(_fields(serialized))[_VALUE_IN_ANY])))
        source = _fields(_bytes(checked.get(_SOURCE, b"")))
        positions = dict(_position(_bytes(value)) for number, value in source if number == _POSITIONS)
        return _node(_bytes(checked[_EXPRESSION]), positions)
    except (KeyError, IndexError, TypeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableTree("the compiled form of the rule cannot be read") from error


def _node(message: bytes, positions: dict[int, int]) -> Node:
    fields = dict(_fields(message))
    offset = positions.get(_int(fields.get(_ID, 0)))
    if _CONSTANT in fields:
        ((kind, value),) = _fields(_bytes(fields[_CONSTANT]))
        shape = _CONSTANTS.get(kind, "other")
        return Node(shape, _bytes(value).decode() if shape == "text" else "", offset=offset)
    if _NAME in fields:
        return Node("name", _bytes(dict(_fields(_bytes(fields[_NAME])))[1]).decode(), offset=offset)
    if _CALL in fields:
        parts = list(_fields(_bytes(fields[_CALL])))
        function = next(_bytes(value).decode() for number, value in parts if number == 2)
        receiver = [value for number, value in parts if number == 1]
        inner = [*receiver, *(value for number, value in parts if number == 3)]
        return Node("call", function, tuple(_node(_bytes(value), positions) for value in inner), offset)
    if _LIST in fields:
        parts = [(number, value) for number, value in _fields(_bytes(fields[_LIST])) if number == 1]
        return Node("list", "", tuple(_node(_bytes(value), positions) for _, value in parts), offset)
    return Node("other", offset=offset)


def _position(entry: bytes) -> tuple[int, int]:
    fields = dict(_fields(entry))
    return _int(fields.get(1, 0)), _int(fields.get(2, 0))


def _fields(message: bytes) -> Iterator[_Field]:
    """Number and value of each field, in order; of nested messages the bytes."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield number, value
        elif kind in {_FIXED64, _FIXED32}:
            at += 8 if kind == _FIXED64 else 4
            yield number, 0
        elif kind == _BYTES:
            length, at = _varint(message, at)
            if at + length > len(message):
                raise IndexError(length)
            yield number, message[at : at + length]
            at += length
        else:
            raise KeyError(kind)


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise TypeError(value)
    return value


def _int(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise TypeError(value)
    return value
