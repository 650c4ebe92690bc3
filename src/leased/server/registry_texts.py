"""Credentials, rule sets, audit lines and holds as JSON texts, for registries that keep those. It keeps nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from leased.server.credentials import Credential, RuleSet
from leased.server.holds import PastHold
from leased.server.registry import AuditLine


def write_credential(one: Credential) -> str:
    """A credential, but for the instant at which it was revoked."""
    return _text(
        [
            *(one.id, one.project, one.kind, one.name, one.digest.hex(), one.role),
            *(sorted(one.groups), sorted(one.scopes)),
            *(one.created_at, one.created_by, one.expires_at),
        ]
    )


def read_credential(text: str | bytes, *, revoked_at: float | None) -> Credential:
    """See `write_credential`."""
    id_, project, kind, name, digest, role, groups, scopes, created_at, created_by, expires_at = json.loads(text)
    return Credential(
        id=id_,
        project=project,
        kind=kind,
        name=name,
        digest=bytes.fromhex(digest),
        role=role,
        groups=frozenset((group, kind_) for group, kind_ in groups),
        scopes=frozenset(scopes),
        created_at=created_at,
        created_by=created_by,
        expires_at=expires_at,
        revoked_at=revoked_at,
    )


def write_rules(rule_set: RuleSet) -> str:
    """What a rule set holds, but for project and name."""
    return _text([rule_set.acquire, rule_set.renew, rule_set.installed_at, rule_set.installed_by])


def read_rules(text: str | bytes, *, project: str, name: str) -> RuleSet:
    """See `write_rules`."""
    return RuleSet(project, name, *json.loads(text))


def write_line(line: AuditLine) -> str:
    """An audit line, but for project and number."""
    return _text([line.at, line.actor, line.action, line.target, line.detail, line.count])


def read_line(text: str | bytes, *, project: str, number: int) -> AuditLine:
    """See `write_line`."""
    return replace(AuditLine(project, *json.loads(text)), number=number)


def write_begin(hold: PastHold) -> str:
    """What is known of a hold from its begin on, but for what it is found by."""
    return _text([hold.held_by, hold.owner, hold.acquired_at, hold.waited, hold.until])


def write_reason(reason: str) -> str:
    """Why it was ended."""
    return _text(reason)


def read_hold(row: Sequence[Any], *, project: str, key: str) -> PastHold:
    """A hold of a key, of its mark, fencing token, begin, and instant, kind and reason of its end."""
    mark, fencing_token, begin, ended_at, end, reason = row
    held_by, owner, acquired_at, waited, until = json.loads(begin)
    return PastHold(
        project,
        key,
        mark,
        fencing_token,
        held_by,
        owner,
        acquired_at,
        waited,
        until,
        ended_at,
        end,
        json.loads(reason),
    )


def _text(value: Any) -> str:
    """JSON in plain ASCII: whatever a caller has sent can be kept so."""
    return json.dumps(value, separators=(",", ":"))
