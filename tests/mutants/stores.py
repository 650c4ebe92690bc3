"""Mistakes that could be in the scripts and statements of the stores: one place in their text, changed."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from leased.stores import _redis_scripts as scripts
from mutation.planting import plant

LUA = Path(str(scripts._LUA))
_SCRIPTS = {
    "acquire": scripts.ACQUIRE, "renew": scripts.RENEW, "release": scripts.RELEASE, "abandon": scripts.ABANDON,
    "force_release": scripts.FORCE_RELEASE, "status": scripts.STATUS,
}  # fmt: skip
_COUNTS = {name: int(script.by_hash[1:].split(b"\r\n")[0]) - 3 for name, script in _SCRIPTS.items()}


@dataclass(frozen=True, slots=True)
class StoreBug:
    """In `place` (a file of Lua, or a module of `leased.stores`), `old` is there once and reads `new` instead."""

    store: str
    name: str
    place: str
    old: str
    new: str

    def __str__(self) -> str:
        """For test ids."""
        return f"{self.store}: {self.name}"


@contextmanager
def planted(bug: StoreBug, directory: Path) -> Iterator[None]:
    """Run the block with the bug in the store; stores have to be opened inside. `directory` is empty, for copies."""
    if bug.store == "redis":
        with _in_lua(bug, directory):
            yield
        return
    module = importlib.import_module(f"leased.stores.{bug.place}")
    source = Path(str(module.__file__)).read_text()
    constants = {name: value for name, value in vars(module).items() if isinstance(value, str)}
    wrong = _edited(bug, source)
    scope = _run(wrong)
    changed = {name: scope[name] for name, value in constants.items() if name[:2] != "__" and scope[name] != value}
    vars(module).update(changed)
    try:
        assert plant(module, wrong) + len(changed), f"{bug} changes nothing"
        yield
    finally:
        plant(module, source)
        vars(module).update(constants)


def _run(source: str) -> dict[str, Any]:
    """What a module with this source has in it."""
    module = ModuleType("wrong")
    sys.modules["wrong"] = module  # where dataclasses look up the names in annotations
    try:
        exec(compile(source, "wrong", "exec"), vars(module))
    finally:
        del sys.modules["wrong"]
    return vars(module)


def _edited(bug: StoreBug, text: str) -> str:
    assert text.count(bug.old) == 1, f"{bug}: this is there {text.count(bug.old)} times: {bug.old}"
    return text.replace(bug.old, bug.new)


@contextmanager
def _in_lua(bug: StoreBug, directory: Path) -> Iterator[None]:
    copies = directory / "lua"
    shutil.copytree(LUA, copies)
    target = copies / f"{bug.place}.lua"
    target.write_text(_edited(bug, target.read_text()))
    try:
        _renew_scripts(copies)
        yield
    finally:
        _renew_scripts(LUA)


def _renew_scripts(files: Path) -> None:
    setattr(scripts, "_LUA", files)  # noqa: B010 - a constant, so no assignment
    for name, script in _SCRIPTS.items():
        fresh = scripts.Script(name, count=_COUNTS[name])
        script.by_hash, script.by_text = fresh.by_hash, fresh.by_text
    scripts.LOOK.by_hash, scripts.LOOK.by_text = scripts.RENEW.by_hash, scripts.RENEW.by_text


def _bugs(store: str, place: str, *rows: tuple[str, str, str]) -> tuple[StoreBug, ...]:
    return tuple(StoreBug(store, name, place, old, new) for name, old, new in rows)


BUGS = (
    *_bugs(
        "redis",
        "acquire",
        ("fencing token not raised", "math.max(fence + 1, now)", "math.max(fence, 1)"),
        ("fencing tokens from the clock alone", "math.max(fence + 1, now)", "now - now % 1000000"),
        ("no owner is the same owner", "owner == '' or owner ~=", "owner ~="),
        ("taken over by anybody", "if owner == '' or owner ~= ARGV[3] then return shown('c') end", ""),
        ("a taken-over token is not marked", "mark(token, RETAKEN)", ""),
        ("an ended token is granted again", " or marked(ARGV[2]) then return shown('e')", " then return shown('e')"),
        ("a lapsed token is granted again", "if token == ARGV[2] or marked", "if marked"),
        ("a closed key is granted", "elseif now < free then", "elseif now < expires then"),
        ("max_hold ignored at the grant", "math.min(wanted, span)", "wanted"),
        ("hold_at_least ignored at the grant", "math.max(expires + pause, now + least)", "expires + pause"),
        ("lock_delay ignored at the grant", "math.max(expires + pause, now + least)", "math.max(expires, now + least)"),
        ("a repeated claim does not become late", "late = math.max(late, again)", ""),
    ),
    *_bugs(
        "redis",
        "renew",
        ("token not compared", "token == ARGV[2], tonumber", "true, tonumber"),
        ("a lapsed lease revived", "if live and mine then", "if mine then"),
        ("equal renewal numbers count", "number > math.max(renewal, 0)", "number >= math.max(renewal, 0)"),
        ("renewal number not kept", "renewal, ttl = number, ", "ttl = "),
        ("max_hold ignored", "math.min(now + ttl, deadline)", "now + ttl"),
        ("renewal not written", "if number >= 0 then save() end", ""),
    ),
    *_bugs(
        "redis",
        "release",
        ("token not compared", "local mine = token == ARGV[2]", "local mine = token ~= ''"),
        ("a late claim leaves no mark", "or (mine and late == 1)", ""),
        ("hold_at_least ignored", "math.min(acquired, now) + at_least, 0", "now, 0"),
        ("an expired lease is released", "if not live then return at .. 'x' end", ""),
    ),
    *_bugs(
        "redis", "abandon", ("no mark", "mark(ARGV[2], ENDED)", ""), ("ends any", "live and token == ARGV[2]", "live")
    ),
    *_bugs(
        "redis",
        "force_release",
        ("not aimed", "(aim ~= '' and tonumber(aim) ~= fence)", "false"),
        ("no delay", "finish(now + delay, 1)", "finish(now, 1)"),
        ("no mark", "mark(token, FORCE_RELEASED)", ""),
        ("opens its own delay", "now < free and forced == 0", "now < free"),
    ),
    *_bugs(
        "redis",
        "record",
        ("held for a second longer", "token ~= '' and now < expires", "token ~= '' and now < expires + 1000000"),
    ),
    *_bugs("redis", "marks", ("marks count for ever", "return now < till and reason or nil", "return reason")),
    *_bugs("redis", "marking", ("the last reason stands", "reason = marked(ended) or reason", "")),
    *_bugs(
        "postgres",
        "_postgres_statements",
        ("fencing token not raised", "greatest(r.fencing_token + 1, {self.now})", "r.fencing_token"),
        ("an owned key is granted", "WHERE r.acquired_at + r.free_in <= {self.now} AND r.marked", "WHERE r.marked"),
        ("a marked token is not looked for", "<= {self.now} AND r.marked_until <= {self.now}\n", "<= {self.now}\n"),
        ("a lapsed token is granted again", " AND r.token IS DISTINCT FROM excluded.token", ""),
        ("late of a lapsed lease forgotten", "AND NOT r.late AND r.token IS DISTINCT", "AND r.token IS DISTINCT"),
        ("equal renewal numbers count", "greatest(r.renewal, 0) < $4", "greatest(r.renewal, 0) <= $4"),
        (
            "a lapsed lease revived",
            " AND {self.now} < r.acquired_at + r.expires_in\n            RETURNING r.f",
            "\n            RETURNING r.f",
        ),
        ("max_hold ignored", "least({self.now} - r.acquired_at + $5, r.max_hold)", "{self.now} - r.acquired_at + $5"),
        ("lock_delay ignored", "e.expires_in + r.lock_delay, r.hold", "e.expires_in, r.hold"),
        ("release of a late claim leaves no mark", "r.token = $3 AND NOT r.late", "r.token = $3"),
        (
            "hold_at_least ignored by release",
            "greatest({self.now} - r.acquired_at, r.hold_at_least)",
            "{self.now} - r.acquired_at",
        ),
        (
            "the last reason of a mark stands",
            "CASE WHEN m.until > {self.now} THEN m.reason ELSE excluded.reason END",
            "excluded.reason",
        ),
        ("marks count for half the time", "$3, {self.now} + {REPLAY})", "$3, {self.now} + {REPLAY} / 2)"),
        ("the list shows open keys", "AND key > $4 AND acquired_at + free_in > {self.then}", "AND key > $4"),
        ("the list begins with the last key", "AND key > $4", "AND key >= $4"),
    ),
    *_bugs(
        "mysql",
        "_mysql_statements",
        ("fencing token not raised", "GREATEST(fencing_token+1,acquired_at)", "fencing_token"),
        ("a held key is granted", "AND free_at<={now} AND marked_until", "AND marked_until"),
        ("a marked token is not looked for", " AND marked_until<={now} AND NOT late", " AND NOT late"),
        ("a lapsed token is granted again", " AND NOT (token<=>{literal(new.token)})", ""),
        (
            "renewal does not compare the token",
            "AND token={literal(token)} AND expires_at>{now} AND GREATEST(renewal",
            "AND expires_at>{now} AND GREATEST(renewal",
        ),
        ("equal renewal numbers count", "GREATEST(renewal,0)<{number}", "GREATEST(renewal,0)<={number}"),
        ("a lapsed lease revived", "AND expires_at>{now} AND GREATEST(renewal", "AND GREATEST(renewal"),
        ("max_hold ignored", "LEAST({now}+{length},deadline)", "{now}+{length}"),
        ("hold_at_least ignored by release", "GREATEST({now},acquired_at+hold_at_least),token", "{now},token"),
        ("release of a late claim leaves no mark", "AND expires_at>{now} AND NOT late", "AND expires_at>{now}"),
        ("marks never end", "({_listed(tokens)}) AND until>{now}", "({_listed(tokens)})"),
    ),
    *_bugs(
        "sqlite",
        "_sqlite_steps",
        ("a mark ends too soon", "self._boot, self._now + REPLAY)", "self._boot, self._now + REPLAY // 2)"),
        ("the last reason of a mark stands", "self._marked(token) or reason", "reason"),
        ("fencing token not kept", "if self._granted:", "if False:"),
        ("a closed key opens", "if record.free_at > self._now:", "if False:"),
        ("renewal number not kept", "wall = ?, renewal = ?, expires_at", "wall = ?, renewal = min(?, 0), expires_at"),
        ("late not kept", "SET late = ?, renewal", "SET late = min(?, 0), renewal"),
        ("a forced end is not remembered", "(int(record.forced), self._wall", "(0, self._wall"),
        ("the list goes backwards", "AND key > ? ORDER BY key", "AND key > ? ORDER BY key DESC"),
    ),
)
