"""Changing credentials and rule sets, for whoever may: each change with its line in the audit log. It knows no HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from leased.checks import check_plain, check_span, shown
from leased.errors import InvalidRequest
from leased.server.audit import line_of
from leased.server.credentials import (
    Credential,
    RuleSet,
    Wanted,
    check_grant,
    check_groups,
    check_rule_set,
    check_user_id,
    check_wanted,
)
from leased.server.keys import ApiKey, Hasher, new_key
from leased.server.principals import Principal
from leased.server.registry import MAX_PAGE, Registry
from leased.server.rights import RULED, is_ruled
from leased.server.rules import Asked, compile_rule
from leased.wire import Body, instant

MIN_LIFE = 1.0
"""Seconds that a credential lives at the least: zero is a mistake, not a wish."""

MAX_LIFE = 10 * 366 * 86_400.0
"""Seconds until a credential that expires at all has to expire."""


@dataclass(frozen=True, slots=True)
class Management:
    """What an administrator can do, whose right was checked before. `wall` gives seconds since the epoch."""

    registry: Registry
    hasher: Hasher
    wall: Callable[[], float]

    async def create(self, by: Principal, wanted: Wanted, *, life: float | None = None) -> tuple[ApiKey, Credential]:
        """A new credential and its key, which is never shown again; `life` in seconds, `None` for no end."""
        now = self.wall()
        key, credential = new_credential(by, wanted, hasher=self.hasher, now=now, life=life)
        about = f"{credential.kind}:{credential.name}, {_powers(credential)}"
        line = line_of(by, "create credential", at=now, target=key.id, detail=about)
        await self.registry.add_credential(credential, replace(line, project=credential.project))
        return key, credential

    async def revoke(self, by: Principal, id: str) -> Credential:
        """End a credential of the project at once. Raises `InvalidRequest` where there is none to end."""
        check_plain(id, what="id")
        found = await self.registry.credential(id)
        if found is None or found.project != by.project:
            raise InvalidRequest(f"the project has no credential {shown(id)!r}", hint="a list shows their ids")
        check_grant(by, found)
        line = line_of(by, "revoke credential", at=self.wall(), target=id, detail=f"{found.kind}:{found.name}")
        await self.registry.revoke(found, line)
        return replace(found, revoked_at=found.revoked_at or line.at)

    async def install(self, by: Principal, rule_set: RuleSet) -> RuleSet:
        """Install the project's rule set, or replace it by one of the same name."""
        check_rule_set(rule_set)
        rule_set = replace(rule_set, project=by.project, installed_at=self.wall(), installed_by=by.name)
        line = line_of(
            by, "install rule set", at=rule_set.installed_at, target=rule_set.name, detail=_sources(rule_set)
        )
        if not await self.registry.put_rule_set(rule_set, line):
            present = await self.registry.rule_set(by.project)
            name = "another one" if present is None else present.name
            raise InvalidRequest(
                f"the project has the rule set {name}; {rule_set.name} would be a second one",
                hint="delete that first, or install yours under its name",
            )
        return rule_set

    async def remove(self, by: Principal, name: str) -> None:
        """Delete the project's rule set: every member may take any key again. Raises `InvalidRequest` for another."""
        check_plain(name, what="name")
        line = line_of(by, "delete rule set", at=self.wall(), target=name)
        if not await self.registry.delete_rule_set(by.project, name, line=line):
            raise InvalidRequest(f"the project has no rule set {shown(name)!r}")


def new_credential(
    by: Principal, wanted: Wanted, *, hasher: Hasher, now: float, life: float | None
) -> tuple[ApiKey, Credential]:
    """A key, and what is kept of it; both are kept nowhere yet. Raises what `Management.create` raises."""
    key = new_key()
    if life is not None:
        check_span(life, what="life of a credential", least=MIN_LIFE, most=MAX_LIFE)
    credential = Credential(
        id=key.id,
        digest=hasher.digest(key),
        created_at=now,
        created_by=by.name,
        expires_at=None if life is None else now + life,
        **check_wanted(wanted),
    )
    check_grant(by, credential)
    return key, credential


def judge(rule_set: RuleSet | None, asked: Asked) -> Mapping[str, tuple[bool, str]]:
    """What a member would be told for each operation, and why, for administrators. The groups and id are checked."""
    check_user_id(asked.user_id)
    check_groups(asked.groups)
    if asked.role not in {"owner", "admin", "member"}:
        raise InvalidRequest(f"the role {shown(asked.role)!r} is none of owner, admin, member")
    member = Principal("", "member", asked.user_id, asked.role)  # type: ignore[arg-type]  # checked above
    found: dict[str, tuple[bool, str]] = {}
    for operation in sorted(RULED):
        source = None if rule_set is None else getattr(rule_set, operation)
        if not is_ruled(member, operation):
            found[operation] = (True, "admins and owners pass")
        elif rule_set is None:
            found[operation] = (True, "there is no rule set")
        elif source is None:
            found[operation] = (False, "the rule set has no rule for it")
        else:
            verdict = compile_rule(source, what=f"rules.lock.{operation}").judge(asked)
            found[operation] = (verdict.allowed, verdict.error or f"the rule says {'yes' if verdict.allowed else 'no'}")
    return found


def write_credential(credential: Credential, *, now: float) -> Body:
    """A credential as JSON has it: nothing that could be used in its place."""

    def moment(seconds: float | None) -> str | None:
        return None if seconds is None else instant(seconds)

    state = "active"
    if credential.revoked_at is not None:
        state = "revoked"
    elif credential.expires_at is not None and now >= credential.expires_at:
        state = "expired"
    return {
        "id": credential.id,
        "project": credential.project,
        "kind": credential.kind,
        "name": credential.name,
        "role": credential.role if credential.kind == "member" else None,
        "groups": [{"name": name, "kind": kind} for name, kind in sorted(credential.groups)],
        "scopes": sorted(credential.scopes),
        "state": state,
        "createdAt": moment(credential.created_at),
        "createdBy": credential.created_by,
        "expiresAt": moment(credential.expires_at),
        "revokedAt": moment(credential.revoked_at),
    }


async def all_credentials(registry: Registry, project: str) -> Sequence[Credential]:
    """All credentials of a project, page by page."""
    found: list[Credential] = []
    while page := await registry.credentials(project, after=found[-1].id if found else "", limit=MAX_PAGE):
        found += page
    return found


def _powers(credential: Credential) -> str:
    if credential.kind == "member":
        groups = ", ".join(f"{name} ({kind})" for name, kind in sorted(credential.groups))
        return f"role {credential.role}" + (f", groups {groups}" if groups else "")
    return f"scopes {', '.join(sorted(credential.scopes)) or 'none'}" if credential.kind == "service" else "function"


def _sources(rule_set: RuleSet) -> str:
    """The rules in the words of the log: what was installed can be read there later."""
    return f"acquire: {rule_set.acquire or '-'}; renew: {rule_set.renew or '-'}"
