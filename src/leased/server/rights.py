"""What each kind of principal may ask for at all, before rules and limits: one pure function."""

from __future__ import annotations

from leased.server.credentials import may_manage
from leased.server.principals import Action, Principal

NEVER_REFUSED: frozenset[Action] = frozenset({"release", "abandon", "look"})
"""What proves itself by its token: neither rights nor rules nor limits stand before it."""

OF_EVERYBODY: frozenset[Action] = frozenset({"status", "capabilities", *NEVER_REFUSED})
"""What any principal of the project may do."""

RULED: frozenset[Action] = frozenset({"acquire", "renew"})
"""What a rule set can restrict, for members whose role is `member`."""

_LOCK_SCOPES = frozenset({"locks.manage", "full"})


def may(principal: Principal, action: Action) -> bool:
    """Whether this kind of principal may do that; rules can still refuse it to members."""
    if action in OF_EVERYBODY or principal.kind == "local":
        return True
    if action == "manage":
        return may_manage(principal)
    if principal.kind == "service":
        return not _LOCK_SCOPES.isdisjoint(principal.scopes)
    if action in RULED:
        return True
    return principal.kind == "member" and principal.role != "member"


def is_ruled(principal: Principal, action: Action) -> bool:
    """Whether the project's rule set decides: admins, owners, functions and service credentials pass it always."""
    return action in RULED and principal.kind == "member" and principal.role == "member"
