"""Where a project's keys and a principal's owners live in the store, so that those of two never meet. No I/O.

Neither keys nor owners, project or user ids can hold a control character, so one of those separates them.
"""

from __future__ import annotations

from leased.errors import InvalidRequest
from leased.policy import MAX_KEY_LENGTH
from leased.server.principals import Principal

SEPARATOR = "\x1f"


def stored_key(principal: Principal, key: str) -> str:
    """The key as the store knows it: without a project, as it is. `InvalidRequest` if no store need hold it."""
    project = principal.project
    if not project:
        return key
    stored = f"{project}{SEPARATOR}{key}"
    if len(stored) > MAX_KEY_LENGTH:
        most = MAX_KEY_LENGTH - len(project) - 1
        raise InvalidRequest(
            f"the key has {len(key)} characters; in this project 1 to {most} are allowed", code="LOCK_KEY_INVALID"
        )
    return stored


def stored_beginning(principal: Principal, beginning: str) -> str:
    """What all stored keys of the project begin with whose shown form begins like this."""
    return f"{principal.project}{SEPARATOR}{beginning}" if principal.project else beginning


def shown_key(principal: Principal, stored: str) -> str:
    """A key of this principal's project as its callers know it."""
    return key_in(principal.project, stored)


def key_in(project: str, stored: str) -> str:
    """The same of any project."""
    return stored[len(project) + 1 :] if project else stored


def project_of(stored: str) -> str:
    """To which project a stored key belongs."""
    project, separator, _ = stored.partition(SEPARATOR)
    return project if separator else ""


def stored_owner(principal: Principal, owner: str | None) -> str | None:
    """The owner as the store compares it: of this principal, and of no other one or kind of caller."""
    if owner is None or principal.kind == "local":
        return owner
    stored = f"{principal.kind}{SEPARATOR}{principal.id}{SEPARATOR}{owner}"
    if len(stored) > MAX_KEY_LENGTH:
        most = MAX_KEY_LENGTH - len(stored) + len(owner)
        raise InvalidRequest(
            f"the owner has {len(owner)} characters; of this caller 1 to {most} are allowed",
            hint="take a digest of what is longer",
        )
    return stored


def shown_owner(stored: str | None) -> str | None:
    """The owner as it was named."""
    return stored if stored is None else stored.rpartition(SEPARATOR)[2]
