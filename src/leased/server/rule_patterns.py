"""Bounds the regular expressions of access rules before any of them is compiled; it matches nothing."""

from __future__ import annotations

MAX_REPEATS = 64
"""The highest count in `{n}` or `{n,m}`."""

MAX_STEPS = 256
"""Characters of all patterns of a rule, with what is to be repeated written out: some milliseconds of work."""

_PLAIN_ESCAPES = frozenset("dDwWsSbB")


def steps_of(pattern: str) -> int:
    """How long a pattern is with everything in braces written out. Raises `ValueError` that says what may not be used.

    The library compiles a pattern at every call, in time that grows with this length, and a class such as `\\pL` alone
    stands for hundreds of ranges: ten characters could cost a second.
    """
    steps, group_starts, atom, at = 0, [], 0, 0  # `atom`: the steps of what a count in braces would repeat
    while at < len(pattern):
        character = pattern[at]
        if not " " <= character <= "~":
            raise ValueError("use ASCII only")
        length = 1
        if character == "\\":
            length = _escape(pattern, at)
        elif character == "[":
            length = _class(pattern, at)
        elif character == "(":
            if pattern.startswith("(?", at) and not pattern.startswith("(?:", at):
                raise ValueError("no group may begin with '(?', but for '(?:'")
            group_starts.append(steps)
        elif character == "{":
            length, most = _count(pattern, at)
            steps += atom * (most - 1) if most else 0
            if steps > MAX_STEPS:  # at once: nested counts multiply
                return steps
        if character == ")" and group_starts:
            atom = steps + 1 - group_starts.pop()
        elif character != "{":
            atom = length
        steps += length
        at += length
    return steps


def _escape(pattern: str, at: int) -> int:
    escaped = pattern[at + 1 : at + 2]
    if not escaped or (escaped.isalnum() and escaped not in _PLAIN_ESCAPES):
        raise ValueError(f"'\\{escaped}' is not allowed; escapes are \\d \\w \\s \\b, in capitals too, and of signs")
    return 2


def _class(pattern: str, start: int) -> int:
    """The length of a class in brackets. `[:alpha:]` inside is allowed."""
    at = start + 1
    at += pattern.startswith("^", at)
    at += pattern.startswith("]", at)
    while at < len(pattern) and pattern[at] != "]":
        if pattern.startswith("[:", at):
            end = pattern.find(":]", at)
            if end < 0:
                raise ValueError("a class has no end")
            at = end + 2
        elif not " " <= pattern[at] <= "~":
            raise ValueError("use ASCII only")
        else:
            at += _escape(pattern, at) if pattern[at] == "\\" else 1
    if at >= len(pattern):
        raise ValueError("a class has no end")
    return at + 1 - start


def _count(pattern: str, at: int) -> tuple[int, int]:
    """The length of a count in braces, and how often it repeats at the most."""
    end = pattern.find("}", at)
    least, comma, most = pattern[at + 1 : end].partition(",") if end > 0 else ("", "", "")
    numbers = [least, most] if comma and most else [least]
    if not all(number.isdecimal() and len(number) <= 3 and int(number) <= MAX_REPEATS for number in numbers):
        raise ValueError(f"a brace begins a count of at most {MAX_REPEATS}, such as {{4}} or {{2,8}}; escape others")
    return end + 1 - at, max(map(int, numbers)) + bool(comma and not most)
