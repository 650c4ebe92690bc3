"""The scripts of the Redis store, as packed commands; what they mean stands in the files beside, in `lua`."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha1
from importlib.resources import files
from struct import Struct
from typing import Any

from leased.policy import FENCE_RETENTION, REPLAY_WINDOW
from leased.stores._redis_wire import bulk

SECOND = 1_000_000
"""Microseconds: the scripts' unit of time."""

_TIME = Struct("<d")
_LUA = files("leased.stores") / "lua"
_USES = re.compile(r"^ *-- Uses: (.*)\.$", re.MULTILINE)


def _text(name: str) -> str:
    """A script whole: the constants, the record, and every part at the place where it says that it uses it."""

    def read(part: str) -> str:
        text = (_LUA / f"{part}.lua").read_text(encoding="utf-8")
        return _USES.sub(lambda line: "\n".join(read(used) for used in line[1].split(", ")), text)

    constants = f"local REPLAY, RETENTION = {int(REPLAY_WINDOW * SECOND)}, {int(FENCE_RETENTION * SECOND)}\n"
    return constants + read("record") + read(name)


class Script:
    """One script: `by_hash` and `by_text` are what comes before its key and arguments, of which there are `count`.

    `reading` is what an answer says of what was asked. It raises `StoreNotUsable` for a record that cannot be read, and
    one of `SENSELESS` for what is no answer to that.
    """

    reading: Callable[[Any, Any], Any]

    def __init__(self, name: str, *, count: int) -> None:
        text = _text(name).encode()
        digest = sha1(text, usedforsecurity=False).hexdigest().encode()
        self.by_hash = b"*%d\r\n%b%b%b" % (count + 3, bulk(b"EVALSHA"), bulk(digest), bulk(b"1"))
        self.by_text = b"*%d\r\n%b%b%b" % (count + 3, bulk(b"EVAL"), bulk(text), bulk(b"1"))


class Command:
    """A script to run: `name` is the record's, by which a cluster finds the node; `data` is the whole command.

    `asked` is for whoever reads the answer; `undo` is what takes a grant back.
    """

    undo: Command | None = None

    def __init__(self, script: Script, name: bytes, *, data: bytes, asked: Any) -> None:
        self.script = script
        self.name = name
        self.data = data
        self.asked = asked

    @property
    def lasts(self) -> bool:
        """Whether somebody counts on what it wrote."""
        return self.script is ACQUIRE or self.script is RENEW

    @property
    def by_text(self) -> bytes:
        """The command for a server that does not know the script."""
        return self.script.by_text + self.data[len(self.script.by_hash) :]

    @property
    def grants(self) -> bool:
        """Whether it may grant a lease."""
        return self.script is ACQUIRE


ACQUIRE = Script("acquire", count=6)
RENEW = Script("renew", count=5)
LOOK = Script("renew", count=5)
RELEASE = Script("release", count=4)
ABANDON = Script("abandon", count=4)
FORCE_RELEASE = Script("force_release", count=3)
STATUS = Script("status", count=2)


def time_of(answer: bytes) -> float:
    """The server's time as a script answered, in microseconds."""
    (now,) = _TIME.unpack_from(answer)
    return float(now)


def letter_of(answer: bytes) -> bytes:
    """What kind of answer of a script it is."""
    return answer[_TIME.size :][:1]
