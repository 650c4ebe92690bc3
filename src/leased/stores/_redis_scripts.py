"""The scripts of the Redis store, as packed commands; what they mean stands in the files beside, in `lua`."""

from __future__ import annotations

from hashlib import sha1
from importlib.resources import files

from leased.policy import FENCE_RETENTION, REPLAY_WINDOW
from leased.stores._redis_wire import bulk

SECOND = 1_000_000
"""Microseconds: the scripts' unit of time."""

_LUA = files("leased.stores") / "lua"
_RECORD = (
    f"local REPLAY, RETENTION = {int(REPLAY_WINDOW * SECOND)}, {int(FENCE_RETENTION * SECOND)}\n"
    + (_LUA / "record.lua").read_text()
)


class Script:
    """One script: `by_hash` and `by_text` are what comes before its keys and arguments, of which there are `count`."""

    __slots__ = ("by_hash", "by_text")

    def __init__(self, name: str, *, count: int) -> None:
        text = (_RECORD + (_LUA / f"{name}.lua").read_text()).encode()
        digest = sha1(text).hexdigest().encode()  # noqa: S324 - the name that Redis gives a script
        self.by_hash = b"*%d\r\n%b%b%b" % (count + 3, bulk(b"EVALSHA"), bulk(digest), bulk(b"2"))
        self.by_text = b"*%d\r\n%b%b%b" % (count + 3, bulk(b"EVAL"), bulk(text), bulk(b"2"))


class Command:
    """A script to run: `name` is the record's, by which a cluster finds the node; `rest` its keys and arguments."""

    __slots__ = ("grants", "name", "rest", "script")

    def __init__(self, script: Script, name: bytes, *, rest: bytes, grants: bool = False) -> None:
        self.script = script
        self.name = name
        self.rest = rest
        self.grants = grants


ACQUIRE = Script("acquire", count=12)
RENEW = Script("renew", count=6)
RELEASE = Script("release", count=5)
ABANDON = Script("abandon", count=4)
FORCE_RELEASE = Script("force_release", count=4)
STATUS = Script("status", count=3)
