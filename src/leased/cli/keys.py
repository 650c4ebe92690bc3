"""`leased keys`: makes, lists and ends API keys in the registry of a service, which may run meanwhile."""

from __future__ import annotations

import asyncio
import getpass
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from leased.checks import shown
from leased.cli.session import Session
from leased.cli.streams import write
from leased.errors import InvalidRequest, StoreNotUsable
from leased.policy import OPERATION_TIMEOUT
from leased.server.credentials import Credential, Wanted, check_name
from leased.server.keys import Hasher, pepper_in
from leased.server.management import Management, all_credentials, new_credential, write_credential
from leased.server.principals import Principal
from leased.server.registries import Opened, Place, open_registry
from leased.server.registry_file import PUBLIC_PEPPER, write_entry
from leased.server.registry_names import kind_of, path_of

REGISTRY = "LEASED_SERVE_REGISTRY"
"""The environment variable that names the registry, as it does for `leased serve`."""

REGISTRY_KEY = "LEASED_SERVE_REGISTRY_KEY"
"""The one that names the file with the key of its hash."""

_HEAD = ("ID", "KIND", "NAME", "POWERS", "STATE", "EXPIRES")
_T = TypeVar("_T")


def keys(session: Session) -> int:
    """Do what the word after `keys` says."""
    verbs = {"create": _create, "list": _list, "revoke": _revoke}
    return verbs[session.arguments.verb](session)


def registry_of(session: Session) -> Place:
    """The registry that was named. Raises `InvalidRequest` where none was."""
    named: str = session.arguments.registry or session.environment.get(REGISTRY, "")
    if not named:
        raise InvalidRequest(
            "no registry is named", hint=f"pass --registry PATH-OR-URL, as to leased serve, or set {REGISTRY}"
        )
    session.warn_of_registry()
    return Place(named, key_file_of(session))


def key_file_of(session: Session) -> str:
    """The key file that was named, or nothing."""
    named: str = session.arguments.registry_key or session.environment.get(REGISTRY_KEY, "")
    return named


def operator(project: str) -> Principal:
    """Whoever can write the registry may do everything; the audit log knows him by his name on this machine."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = "unknown"
    return Principal(check_name(project, what="project"), "local", user)


def with_registry(place: Place, work: Callable[[Management], Awaitable[_T]], *, make: bool = False) -> _T:
    """What work returns that is given the registry, which is closed afterwards.

    `make`: whether a registry is made where there is none; otherwise that is `StoreNotUsable`.
    """
    if not make:
        _check_exists(place)

    async def run() -> _T:
        opened: Opened = open_registry(place, begin=make, timeout=OPERATION_TIMEOUT)
        try:
            return await work(Management(opened.registry, opened.hasher, time.time))
        finally:
            await opened.registry.close()

    return asyncio.run(run())


def _check_exists(place: Place) -> None:
    """Raise `StoreNotUsable` for a file that is not there: a name with a slip in it must not become a registry."""
    path = path_of(place.url)
    if kind_of(place.url) == "sqlite" and not os.path.exists(path):
        raise StoreNotUsable(
            f"there is no registry {path!r}",
            hint="name one that exists, or make it with its first key: leased keys create --registry PATH --name USER",
        )


def pairs_of(texts: Sequence[str]) -> list[tuple[str, str]]:
    """Groups as they are typed, `NAME:KIND`."""
    pairs = []
    for text in texts:
        name, colon, kind = text.rpartition(":")
        if not (name and colon and kind):
            raise InvalidRequest(f"the group {shown(text)!r} has no kind", hint="write NAME:KIND, such as ops:team")
        pairs.append((name, kind))
    return pairs


def _create(session: Session) -> int:
    """Make a key and show it, once; a key that cannot be shown is ended."""
    given = session.arguments
    if given.id is not None or not given.name:
        raise InvalidRequest("a key is made for somebody", hint="leased keys create --kind member --name USER")
    wanted = Wanted(
        given.project,
        given.kind,
        given.name,
        role=given.role,
        groups=pairs_of(given.group),
        scopes=given.scope,
    )
    life = session.seconds("expires") if given.expires is not None else None
    by = operator(given.project)
    if given.print_hash:
        return _print_hash(session, by, wanted, life=life)
    path = registry_of(session)
    key, credential = with_registry(path, lambda registry: registry.create(by, wanted, life=life), make=True)
    facts = {"key": key.text, "credential": write_credential(credential, now=time.time())}
    rows = [("id", credential.id), *_about(credential), ("key", key.text)]
    try:
        session.output.record(facts, rows)
    except BaseException:
        with_registry(path, lambda registry: registry.revoke(by, credential.id))
        raise
    session.output.talk("the key is not shown again; keep it where only its user can read it")
    return 0


def _print_hash(session: Session, by: Principal, wanted: Wanted, *, life: float | None) -> int:
    """Make a key for a registry file, and show it with what is to be written there; nothing is kept."""
    key_file = key_file_of(session)
    hasher = Hasher(pepper_in(key_file, make=True) if key_file else PUBLIC_PEPPER)

    key, credential = new_credential(by, wanted, hasher=hasher, now=time.time(), life=life)
    entry = write_entry(credential)
    if session.output.json:
        session.output.record({"key": key.text, "entry": entry}, [])
    else:
        write(f"# key: {key.text}\n{entry}")
    session.output.talk("the key is not shown again, and no part of the file; keep it where only its user can read it")
    return 0


def _list(session: Session) -> int:
    """Show the keys of a project, without their secrets."""
    project = operator(session.arguments.project).project
    found = with_registry(registry_of(session), lambda place: all_credentials(place.registry, project))
    now = time.time()
    if session.output.json:
        session.output.lines(write_credential(one, now=now) for one in found)
        return 0
    if not found:
        session.output.talk(f"the project {project} has no keys in this registry")
    session.output.table(_HEAD, [_line(one, now=now) for one in found])
    return 0


def _revoke(session: Session) -> int:
    """End a key; a service that runs follows within two seconds."""
    given = session.arguments
    if given.id is None:
        raise InvalidRequest("which key?", hint="leased keys revoke ID; leased keys list shows the ids")
    by = operator(given.project)
    credential = with_registry(registry_of(session), lambda registry: registry.revoke(by, given.id))
    session.output.record(
        write_credential(credential, now=time.time()), [("revoked", credential.id), *_about(credential)]
    )
    return 0


def _about(credential: Credential) -> Sequence[tuple[str, str]]:
    return [
        ("project", credential.project),
        (credential.kind, credential.name),
        ("powers", _powers(credential)),
        ("expires", _expiry(credential)),
    ]


def _powers(credential: Credential) -> str:
    if credential.kind == "member":
        return ", ".join([credential.role, *(f"{name}:{kind}" for name, kind in sorted(credential.groups))])
    return ", ".join(sorted(credential.scopes)) if credential.scopes else "-"


def _expiry(credential: Credential) -> str:
    from leased.cli.output import local_time

    return "never" if credential.expires_at is None else local_time(credential.expires_at)


def _line(credential: Credential, *, now: float) -> tuple[str, ...]:
    state = str(write_credential(credential, now=now)["state"])
    return (credential.id, credential.kind, credential.name, _powers(credential), state, _expiry(credential))
