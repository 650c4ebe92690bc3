"""Credentials and rule sets as values: what they may hold, and who may hand out which. No I/O."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from leased.checks import check_key, shown
from leased.errors import AccessDenied, InvalidRequest
from leased.server.principals import Principal, Role
from leased.server.rules import compile_rule

CredentialKind = Literal["member", "function", "service"]
"""What a credential can stand for."""

SCOPES = frozenset({"locks.manage", "full"})
"""What a service credential can be allowed: to use and manage locks, or everything."""

MAX_GROUPS = 100
"""Groups of one member: more do not fit into a token or a list either."""

MAX_NAME = 64
"""Characters of a project and of a rule set's name."""

_PLAIN_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_RANKS: dict[Role, int] = {"member": 0, "admin": 1, "owner": 2}


@dataclass(frozen=True, slots=True)
class Credential:
    """An API key as the registry has it: whom it stands for and how long; of the key itself only a keyed hash.

    Instants are in seconds since the epoch.
    """

    id: str
    project: str
    kind: CredentialKind
    name: str
    digest: bytes = field(repr=False)
    role: Role = "member"
    groups: frozenset[tuple[str, str]] = field(default=frozenset())
    scopes: frozenset[str] = field(default=frozenset())
    created_at: float = 0.0
    created_by: str = ""
    expires_at: float | None = None
    revoked_at: float | None = None

    def principal(self) -> Principal:
        """Whom it stands for."""
        return Principal(
            project=self.project,
            kind=self.kind,
            id=self.name,
            role=self.role,
            groups=self.groups,
            scopes=self.scopes,
            credential=self.id,
        )


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The one rule set of a project. An operation without a rule is refused to members."""

    project: str
    name: str
    acquire: str | None = None
    renew: str | None = None
    installed_at: float = 0.0
    installed_by: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A credential that somebody asks for, not yet checked."""

    project: str
    kind: str
    name: str
    role: str = "member"
    groups: Collection[tuple[str, str]] = ()
    scopes: Collection[str] = ()


def check_wanted(wanted: Wanted) -> dict[str, Any]:
    """What a credential as asked for would hold, or `InvalidRequest`."""
    if wanted.kind not in get_args(CredentialKind):
        raise InvalidRequest(f"the kind {shown(wanted.kind)!r} is none of member, function, service")
    if wanted.role not in _RANKS or (wanted.role != "member" and wanted.kind != "member"):
        raise InvalidRequest(
            f"the role {shown(wanted.role)!r} does not fit", hint="members are owner, admin or member; others have none"
        )
    if wanted.groups and wanted.kind != "member":
        raise InvalidRequest("only members are in groups", hint="leave the groups out")
    if wanted.scopes and wanted.kind != "service":
        raise InvalidRequest("only service credentials have scopes", hint="leave the scopes out")
    unknown = sorted(set(wanted.scopes) - SCOPES)
    if unknown:
        raise InvalidRequest(f"the scope {shown(unknown[0])!r} is none of {', '.join(sorted(SCOPES))}")
    return {
        "project": check_name(wanted.project, what="project"),
        "kind": cast("CredentialKind", wanted.kind),
        "name": check_user_id(wanted.name, what="user id" if wanted.kind == "member" else "name"),
        "role": wanted.role,
        "groups": check_groups(wanted.groups),
        "scopes": frozenset(wanted.scopes),
    }


def check_user_id(value: object, *, what: str = "user id") -> str:
    """The id itself, or `InvalidRequest`. A colon could forge the space of another in a rule such as `user:<id>:`."""
    text = check_key(value, what=what)
    if ":" in text:
        raise InvalidRequest(f"{what} {shown(text)!r} has a colon", hint="ids become parts of keys: use another sign")
    return text


def check_groups(groups: Collection[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """The pairs of group and kind themselves, or `InvalidRequest`."""
    if len(groups) > MAX_GROUPS:
        raise InvalidRequest(f"{len(groups)} groups are too many; {MAX_GROUPS} are allowed")
    return frozenset((check_key(name, what="group"), check_key(kind, what="kind of group")) for name, kind in groups)


def check_name(value: object, *, what: str) -> str:
    """The name of a project or rule set itself, or `InvalidRequest`: it stands in paths, files and stored keys."""
    if not isinstance(value, str) or len(value) > MAX_NAME or not _PLAIN_NAME.fullmatch(value):
        raise InvalidRequest(
            f"the {what} {shown(value)!r} is no plain name",
            hint=f"1 to {MAX_NAME} lower-case letters, digits, '.', '_' and '-', the first a letter or digit",
        )
    return value


def check_rule_set(rule_set: RuleSet) -> RuleSet:
    """The rule set itself, if its name is plain and its rules can be used; else `InvalidRequest`."""
    check_name(rule_set.name, what="rule set")
    for operation, source in (("acquire", rule_set.acquire), ("renew", rule_set.renew)):
        if source is not None:
            compile_rule(source, what=f"rules.lock.{operation}")
    return rule_set


def may_manage(principal: Principal) -> bool:
    """Whether he may change credentials and rule sets, and read the audit log of his project."""
    if principal.kind == "member":
        return principal.role != "member"
    return principal.kind == "service" and "full" in principal.scopes


def check_grant(principal: Principal, credential: Credential) -> None:
    """Nobody hands out, or takes away, more than he has. Raises `AccessDenied`."""
    if principal.kind == "member" and principal.role != "owner":
        if _RANKS[credential.role] > _RANKS[principal.role]:
            raise AccessDenied(f"{principal.name} may not decide about the role {credential.role}")
        if "full" in credential.scopes:
            raise AccessDenied(f"{principal.name} may not decide about the scope full")
