"""What may be asked about credentials and rule sets: bodies of requests as types, read strictly. It decides nothing."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from leased.server.credentials import MAX_GROUPS, MAX_NAME
from leased.server.management import MAX_LIFE
from leased.server.rules import MAX_SOURCE

Name = Annotated[str, Meta(min_length=1, max_length=255)]
Source = Annotated[str, Meta(max_length=MAX_SOURCE, description="An expression that gives true or false.")]


class Group(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A group that a member is in."""

    name: Name
    kind: Name


Groups = Annotated[list[Group], Meta(max_length=MAX_GROUPS)]
Role = Literal["owner", "admin", "member"]


class CreateCredentialRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """An API key for somebody, or something, of the project."""

    kind: Literal["member", "function", "service"]
    name: Annotated[str, Meta(min_length=1, max_length=255, description="Of a member the user id; without a colon.")]
    role: Role | UnsetType = UNSET
    groups: Groups | UnsetType = UNSET
    scopes: list[Literal["locks.manage", "full"]] | UnsetType = UNSET
    expires_in_ms: Annotated[int, Meta(ge=1000, le=int(MAX_LIFE * 1000))] | UnsetType = UNSET


class RevokeCredentialRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """End an API key."""

    id: Annotated[str, Meta(min_length=1, max_length=64)]


class RuleSetHead(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What a rule set is called, and what it is about."""

    name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
    resource_type: Literal["lock"]


class LockRules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The rules for locks; an operation without one is refused to members."""

    acquire: Source | UnsetType = UNSET
    renew: Source | UnsetType = UNSET


class Rules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """The rules by what they are about."""

    lock: LockRules | UnsetType = UNSET


class RuleSetRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A rule set, in the shape of a rule file."""

    rule_set: RuleSetHead
    rules: Rules | UnsetType = UNSET


class CheckRulesRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What a member would be told: by the rule set of the project, or by one that is not installed."""

    user_id: Name
    key: Name
    role: Role | UnsetType = UNSET
    groups: Groups | UnsetType = UNSET
    document: RuleSetRequest | UnsetType = UNSET
