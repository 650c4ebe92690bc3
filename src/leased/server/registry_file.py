"""A registry that is a TOML file, to be read only: it is changed where it comes from, and read again when it was.

It is for services that are set up by files alone. Request ids and audit lines are kept by each process for itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import tomllib
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from leased.checks import shown
from leased.errors import InvalidRequest, StoreNotUsable, StoreUnavailable
from leased.server.audit import escaped
from leased.server.credentials import Credential, RuleSet, Wanted, check_name, check_rule_set, check_wanted
from leased.server.keys import ID_LENGTH, PEPPER_LENGTH
from leased.server.registry import MAX_PAGE, AuditLine

PUBLIC_PEPPER = b"leased: keys in a registry file".ljust(PEPPER_LENGTH, b".")
"""The key of the hash where no key file is named: a key has 160 random bits, which no list of guesses contains."""

MAX_FILE = 1_048_576
"""Bytes of the file."""

MAX_LINES = 1_000
"""Audit lines that each process remembers; all of them go to the log."""

MAX_REQUESTS = 100_000
"""Request ids that each process remembers."""

_CREDENTIAL = {"id", "hash", "project", "kind", "name", "role", "groups", "scopes", "expires"}
_RULE_SET = {"project", "name", "acquire", "renew"}
_READ_ONLY = "the registry is a file that the service only reads"
_HINT = "change the file, and the service follows"
_log = logging.getLogger("leased.server.audit")


@dataclass(frozen=True, slots=True)
class _Content:
    """What the file says, and by what it is known."""

    stamp: tuple[int, ...] = ()
    credentials: Mapping[str, Credential] = field(default_factory=dict)
    rule_sets: Mapping[str, RuleSet] = field(default_factory=dict)


class FileRegistry:
    """See `Registry`. A file with a mistake in it lets nobody in who is not known, and the log says where it is."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._content = _Content()
        self._lines: deque[AuditLine] = deque(maxlen=MAX_LINES)
        self._number = 0
        self._bound: OrderedDict[tuple[str, str], tuple[bytes, float]] = OrderedDict()
        self._closed = False

    async def credential(self, id: str) -> Credential | None:
        """See `Registry`."""
        return (await self._read()).credentials.get(id)

    async def credentials(self, project: str, *, after: str = "", limit: int = MAX_PAGE) -> Sequence[Credential]:
        """See `Registry`."""
        known = (await self._read()).credentials
        found = [known[id_] for id_ in sorted(known) if id_ > after and known[id_].project == project]
        return found[: min(limit, MAX_PAGE)]

    async def add_credential(self, credential: Credential, line: AuditLine) -> None:
        """See `Registry`: refused."""
        raise InvalidRequest(_READ_ONLY, hint="leased keys create --print-hash prints what to write into it")

    async def revoke(self, credential: Credential, line: AuditLine) -> bool:
        """See `Registry`: refused."""
        raise InvalidRequest(_READ_ONLY, hint=_HINT)

    async def rule_set(self, project: str) -> RuleSet | None:
        """See `Registry`."""
        return (await self._read()).rule_sets.get(project)

    async def put_rule_set(self, rule_set: RuleSet, line: AuditLine) -> bool:
        """See `Registry`: refused."""
        raise InvalidRequest(_READ_ONLY, hint=_HINT)

    async def delete_rule_set(self, project: str, name: str, *, line: AuditLine) -> bool:
        """See `Registry`: refused."""
        raise InvalidRequest(_READ_ONLY, hint=_HINT)

    async def bind_request(self, project: str, request_id: str, *, digest: bytes, until: float, now: float) -> bytes:
        """See `Registry`: for this process."""
        bound = self._bound
        for place in [place for place in islice(bound, 20) if bound[place][1] <= now]:
            del bound[place]
        found = bound.get((project, request_id))
        if found is None or found[1] <= now:
            bound.pop((project, request_id), None)
            if len(bound) >= MAX_REQUESTS:
                bound.popitem(last=False)
            found = bound[project, request_id] = (digest, until)
        return found[0]

    async def write_audit(self, lines: Sequence[AuditLine]) -> None:
        """See `Registry`: to the log of the process, and the last ones to memory."""
        for line in lines:
            self._number += 1
            self._lines.append(replace(line, number=self._number))
            text = [line.project, line.actor, line.action, line.target, line.detail, f"{line.count}"]
            _log.info("audit: %s", " | ".join(escaped(part) for part in text))

    async def audit(self, project: str, *, before: int | None = None, limit: int = MAX_PAGE) -> Sequence[AuditLine]:
        """See `Registry`: the last lines of this process."""
        mine = [line for line in reversed(self._lines) if line.project == project]
        return [line for line in mine if before is None or line.number < before][: min(limit, MAX_PAGE)]

    async def close(self) -> None:
        """See `Registry`."""
        self._closed = True

    async def _read(self) -> _Content:
        if self._closed:
            raise StoreNotUsable(f"the registry {self.path} was closed", hint="connect again")
        self._content = await asyncio.to_thread(_read_again, self.path, self._content)
        return self._content


def _read_again(path: str, known: _Content) -> _Content:
    """What the file says now. Raises `StoreUnavailable` where that cannot be told."""
    try:
        with open(path, "rb") as file:
            state = os.fstat(file.fileno())
            stamp = (state.st_dev, state.st_ino, state.st_mtime_ns, state.st_size)
            if stamp == known.stamp:
                return known
            text = file.read(MAX_FILE + 1)
    except OSError as error:
        raise StoreUnavailable(f"the registry {path} cannot be read: {error.strerror}", applied=False) from error
    try:
        if len(text) > MAX_FILE:
            raise InvalidRequest(f"it has more than {MAX_FILE} bytes")
        return replace(read_registry(text.decode()), stamp=stamp)
    except (InvalidRequest, UnicodeDecodeError) as error:
        _log.error("the registry %s has a mistake: %s", path, error)
        raise StoreUnavailable(f"the registry {path} has a mistake; the log says which", applied=False) from error


def read_registry(text: str) -> _Content:
    """The credentials and rule sets of a file, checked. Raises `InvalidRequest` that names the place."""
    try:
        top = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"it is not TOML: {error}") from None
    unknown = sorted(set(top) - {"credential", "ruleSet"})
    if unknown:
        raise InvalidRequest(f"it has {shown(unknown[0])!r}, which is not known", hint="write [[credential]]")
    credentials = [_credential(one, f"credential {at}") for at, one in _tables(top, "credential", _CREDENTIAL)]
    rule_sets = [_rule_set(one, f"ruleSet {at}") for at, one in _tables(top, "ruleSet", _RULE_SET)]
    by_id, by_project = {one.id: one for one in credentials}, {one.project: one for one in rule_sets}
    if len(by_id) < len(credentials):
        raise InvalidRequest("two credentials have the same id")
    if len(by_project) < len(rule_sets):
        raise InvalidRequest("two rule sets are for the same project", hint="a project has one")
    return _Content((), by_id, by_project)


def _tables(top: Mapping[str, Any], name: str, known: set[str]) -> Sequence[tuple[int, Mapping[str, Any]]]:
    found = top.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise InvalidRequest(f"{name} is no list of tables", hint=f"write [[{name}]]")
    for at, one in enumerate(found, start=1):
        unknown = sorted(set(one) - known)
        if unknown:
            raise InvalidRequest(f"{name} {at} has {shown(unknown[0])!r}, which is not known")
    return list(enumerate(found, start=1))


def _credential(given: Mapping[str, Any], where: str) -> Credential:
    id_, hash_, expires = given.get("id"), given.get("hash"), given.get("expires")
    if not _is_hexadecimal(id_, ID_LENGTH) or not _is_hexadecimal(hash_, 64):
        raise InvalidRequest(f"{where} has no id and hash", hint="leased keys create --print-hash prints both")
    if expires is not None and not (isinstance(expires, datetime) and expires.tzinfo is not None):
        raise InvalidRequest(f"expires of {where} is no instant", hint="such as 2030-01-31T12:00:00Z")
    groups = _texts(given, "groups", where)
    pairs = [group.rpartition(":") for group in groups]
    if not all(name and kind for name, _, kind in pairs):
        raise InvalidRequest(f"a group of {where} has no kind", hint="write NAME:KIND, such as ops:team")
    wanted = Wanted(
        _plain(given, "project", where, default="default"),
        _plain(given, "kind", where, default="member"),
        _plain(given, "name", where),
        role=_plain(given, "role", where, default="member"),
        groups=[(name, kind) for name, _, kind in pairs],
        scopes=_texts(given, "scopes", where),
    )
    ends = None if expires is None else expires.timestamp()
    return Credential(id=str(id_), digest=bytes.fromhex(str(hash_)), expires_at=ends, **check_wanted(wanted))


def _rule_set(given: Mapping[str, Any], where: str) -> RuleSet:
    rules = {name: _plain(given, name, where) for name in ("acquire", "renew") if name in given}
    project = check_name(given.get("project", "default"), what="project")
    return check_rule_set(RuleSet(project, _plain(given, "name", where), rules.get("acquire"), rules.get("renew")))


def _plain(given: Mapping[str, Any], name: str, where: str, *, default: str | None = None) -> str:
    found = given.get(name, default)
    if not isinstance(found, str):
        raise InvalidRequest(f"{name} of {where} is no text")
    return found


def _texts(given: Mapping[str, Any], name: str, where: str) -> list[str]:
    found = given.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise InvalidRequest(f"{name} of {where} is no list of texts")
    return found


def _is_hexadecimal(value: object, length: int) -> bool:
    return isinstance(value, str) and len(value) == length and set(value) <= set("0123456789abcdef")


def write_entry(credential: Credential) -> str:
    """A credential as it stands in the file."""
    lines = ["[[credential]]", f'id = "{credential.id}"', f'hash = "{credential.digest.hex()}"']
    texts = {"project": credential.project, "kind": credential.kind, "name": credential.name}
    if credential.kind == "member":
        texts["role"] = credential.role
    lines += [f"{name} = {_quoted(text)}" for name, text in texts.items()]
    if credential.groups:
        lines.append(f"groups = [{', '.join(_quoted(f'{name}:{kind}') for name, kind in sorted(credential.groups))}]")
    if credential.scopes:
        lines.append(f"scopes = [{', '.join(_quoted(scope) for scope in sorted(credential.scopes))}]")
    if credential.expires_at is not None:
        lines.append(
            f"expires = {datetime.fromtimestamp(credential.expires_at, UTC).isoformat(timespec='milliseconds')}"
        )
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return '"' + "".join(c if c.isprintable() and c not in '\\"' else f"\\U{ord(c):08X}" for c in text) + '"'
