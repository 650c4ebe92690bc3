"""Bytes of a terminal as keys that were pressed. It reads nothing itself, and knows what no key means."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

_NAMES = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[D": "left",
    "\x1b[H": "home",
    "\x1b[1~": "home",
    "\x1b[7~": "home",
    "\x1b[F": "end",
    "\x1b[4~": "end",
    "\x1b[8~": "end",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x15": "clear",
    "\x0c": "redraw",
    "\x1b": "escape",
}
_KEY = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[A-Za-z]|(?=\x1b|$)|(?=[^\[O]))|[^\x1b]", re.DOTALL)
_BEGUN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?$")


class Keys:
    """Turns what a terminal sends into names of keys and characters; keeps what has begun and is not complete yet."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._left = ""

    @property
    def begun(self) -> bool:
        """Whether a key has begun that more bytes may complete."""
        return bool(self._left)

    def feed(self, data: bytes) -> list[str]:
        """The keys that are complete with these bytes; without any, what has begun is what it is: an escape."""
        text = self._left + self._decode(data)
        begun = _BEGUN.search(text) if data else None
        self._left = text[begun.start() :] if begun else ""
        return list(_keys(text[: begun.start()] if begun else text))


def _keys(text: str) -> Iterator[str]:
    for match in _KEY.finditer(text):
        sequence = match[0]
        if sequence.startswith("\x1bO"):
            sequence = f"\x1b[{sequence[2:]}"
        if sequence in _NAMES:
            yield _NAMES[sequence]
        elif sequence.isprintable():
            yield sequence
