"""The routes for administrators: credentials, the rule set and the audit log of their own project."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import UNSET

from leased.checks import check_plain, shown
from leased.errors import AccessDenied, InvalidRequest
from leased.server.audit import write_line
from leased.server.calls import Call, Handler, Route
from leased.server.credentials import RuleSet, Wanted
from leased.server.gate import AccessGate
from leased.server.manage_requests import (
    CheckRulesRequest,
    CreateCredentialRequest,
    RevokeCredentialRequest,
    RuleSetRequest,
)
from leased.server.management import Management, judge, write_credential
from leased.server.registry import MAX_PAGE
from leased.server.rule_files import read_rule_set, write_rule_set
from leased.server.rules import Asked
from leased.wire import Body, instant

_PAGE = {"limit": "the most entries of this page"}


def manage_routes(gate: AccessGate) -> tuple[Route, ...]:
    """All routes over one gate. Each asks it first whether the caller may manage his project."""
    handlers = _Handlers(gate)
    return (
        _route("POST", "credentials", "Make an API key", handlers.create, request=CreateCredentialRequest),
        _route(
            "GET",
            "credentials",
            "A page of API keys, without their secrets",
            handlers.credentials,
            query={"after": "the last id of the page before", **_PAGE},
        ),
        _route("POST", "credentials/revoke", "End an API key", handlers.revoke, request=RevokeCredentialRequest),
        _route("GET", "rule-set", "The rule set of the project", handlers.rule_set),
        _route("PUT", "rule-set", "Install a rule set", handlers.install, request=RuleSetRequest),
        _route("DELETE", "rule-set", "Delete the rule set", handlers.remove, query={"name": "what it is called"}),
        _route(
            "POST",
            "rule-set/check",
            "What a member would be told",
            handlers.check,
            request=CheckRulesRequest,
            asks="looks",
        ),
        _route(
            "GET",
            "audit",
            "A page of the audit log, the newest line first",
            handlers.audit,
            query={"before": "the last number of the page before", **_PAGE},
        ),
    )


def _route(method: str, path: str, summary: str, handler: Handler, **more: Any) -> Route:
    return Route(method, f"/v1/{path}", summary, handler, **more)


class _Handlers:
    def __init__(self, gate: AccessGate) -> None:
        self._gate = gate
        self._management = Management(gate.registry, gate.hasher, gate.wall)

    async def create(self, call: Call) -> Body:
        """The only answer that ever has a key in it."""
        await self._admit(call)
        request: CreateCredentialRequest = call.request
        wanted = Wanted(
            call.principal.project,
            request.kind,
            request.name,
            role="member" if request.role is UNSET else request.role,
            groups=_groups(request.groups),
            scopes=() if request.scopes is UNSET else request.scopes,
        )
        life = None if request.expires_in_ms is UNSET else request.expires_in_ms / 1000.0
        with self._denials(call, "create credential", target=f"{wanted.kind}:{wanted.name}"):
            key, credential = await self._management.create(call.principal, wanted, life=life)
        return {"key": key.text, "credential": write_credential(credential, now=self._gate.wall())}

    async def credentials(self, call: Call) -> Body:
        await self._admit(call)
        after, limit = check_plain(call.query.get("after", ""), what="after"), _number(call, "limit", most=MAX_PAGE)
        found = await self._gate.registry.credentials(call.principal.project, after=after, limit=limit)
        return {"credentials": [write_credential(one, now=self._gate.wall()) for one in found]}

    async def revoke(self, call: Call) -> Body:
        await self._admit(call)
        request: RevokeCredentialRequest = call.request
        with self._changing(call), self._denials(call, "revoke credential", target=request.id):
            credential = await self._management.revoke(call.principal, request.id)
        return {"credential": write_credential(credential, now=self._gate.wall())}

    async def rule_set(self, call: Call) -> Body:
        await self._admit(call)
        return _written(await self._gate.registry.rule_set(call.principal.project))

    async def install(self, call: Call) -> Body:
        await self._admit(call)
        rule_set = _read(call.request)
        with self._changing(call):
            installed = await self._management.install(call.principal, rule_set)
        return _written(installed)

    async def remove(self, call: Call) -> Body:
        await self._admit(call)
        name = call.query.get("name", "")
        with self._changing(call):
            await self._management.remove(call.principal, name)
        return {"deleted": name}

    async def check(self, call: Call) -> Body:
        await self._admit(call)
        request: CheckRulesRequest = call.request
        rule_set = (
            await self._gate.registry.rule_set(call.principal.project)
            if request.document is UNSET
            else _read(request.document)
        )
        role = "member" if request.role is UNSET else request.role
        asked = Asked(request.user_id, role, request.key, frozenset(_groups(request.groups)))
        found = judge(rule_set, asked)
        return {name: {"allowed": allowed, "reason": reason} for name, (allowed, reason) in found.items()}

    async def audit(self, call: Call) -> Body:
        await self._admit(call)
        before = _number(call, "before", most=2**63 - 1) if "before" in call.query else None
        found = await self._gate.registry.audit(
            call.principal.project, before=before, limit=_number(call, "limit", most=MAX_PAGE)
        )
        return {"lines": [write_line(line) for line in found]}

    @contextmanager
    def _denials(self, call: Call, action: str, *, target: str) -> Iterator[None]:
        """What is denied to somebody who may manage, is in the audit log as all that the gate denies."""
        try:
            yield
        except AccessDenied as error:
            self._gate.audit.denied(call.principal, action, target=target, detail=error.message)
            raise

    @contextmanager
    def _changing(self, call: Call) -> Iterator[None]:
        """What the gate knows of the project is old now; also if that got no answer, for it may have been done."""
        try:
            yield
        except BaseException:
            self._gate.doubt(call.principal.project)
            raise
        self._gate.forget(call.principal.project)

    async def _admit(self, call: Call) -> None:
        await self._gate.admit(call.principal, "manage")


def _groups(groups: Any) -> list[tuple[str, str]]:
    return [] if groups is UNSET else [(group.name, group.kind) for group in groups]


def _read(request: RuleSetRequest) -> RuleSet:
    return read_rule_set(msgspec.to_builtins(request))


def _written(rule_set: RuleSet | None) -> Body:
    if rule_set is None:
        return {"installed": False}
    about = {"installedAt": instant(rule_set.installed_at), "installedBy": rule_set.installed_by}
    return {"installed": True, **write_rule_set(rule_set), **about}


def _number(call: Call, name: str, *, most: int) -> int:
    """A whole number from 1 of the query; without one, the most."""
    text = call.query.get(name)
    if text is None:
        return most
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(most)) and 1 <= int(text) <= most):
        raise InvalidRequest(f"{name} {shown(text)!r} is no whole number from 1 to {most}")
    return int(text)
