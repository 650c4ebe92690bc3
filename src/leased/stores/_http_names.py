"""What the keys of a namespace are called at a lock service, and what an answer says in the words of this side."""

from __future__ import annotations

import re
from dataclasses import replace

from leased.checks import shown
from leased.errors import InvalidRequest
from leased.model import Acquire, Contended, Held, Lost, Operation, Released, Status
from leased.policy import MAX_KEY_LENGTH
from leased.wire import Body, Unreadable, read_outcome

SEPARATOR = "::"
"""Between namespace and key: characters that the strictest service allows in a key."""


class Names:
    """The names of keys: those of a namespace begin with it and `::`, those of none are their keys.

    No two namespaces have a name in common: within a namespace, a colon before another one, before a dot or at the end
    is written `:.`, so that the first two in a row are those after it.
    """

    def __init__(self, namespace: str) -> None:
        self._prefix = namespace and re.sub(r":(?=[:.]|\Z)", ":.", namespace) + SEPARATOR

    def inside(self, key: str) -> str:
        """What this key is called; `InvalidRequest` if that is longer than a key may be."""
        name = self._prefix + key
        if len(name) > MAX_KEY_LENGTH:
            raise InvalidRequest(
                f"key {shown(key)!r} has {len(name)} characters with its namespace; {MAX_KEY_LENGTH} are allowed",
                code="LOCK_KEY_INVALID",
                hint="shorten it, for instance by a hash of its long part",
            )
        return name

    def beginning(self, text: str) -> str:
        """How the names of keys begin that begin so."""
        return self._prefix + text

    def moved(self, operation: Operation) -> Operation:
        """The operation on the name of its key."""
        if not self._prefix:
            return operation
        match operation:
            case Acquire(claim):
                return Acquire(replace(claim, key=self.inside(claim.key)))
            case _:
                return replace(operation, key=self.inside(operation.key))

    def status(self, status: Status) -> Status:
        """What anyone may see of a key, by its key."""
        if not self._prefix:
            return status
        if not status.key.startswith(self._prefix):
            raise Unreadable("it is about a key of another namespace")
        return replace(status, key=status.key.removeprefix(self._prefix))

    def outcome(self, operation: Operation, body: Body) -> Held | Contended | Lost | Released | None:
        """What the service answered to an operation. An answer to another one is `Unreadable`: something in between
        has kept it."""
        outcome = read_outcome(operation, body)
        match outcome:
            case Held():
                claim = operation.claim if isinstance(operation, Acquire) else None
                if body.get("key") != self.inside(outcome.lease.key) or (claim and body.get("token") != claim.token):
                    raise Unreadable("it is the answer to another request")
            case Contended(status) if status is not None:
                return replace(outcome, status=self.status(status))
            case _:
                pass
        return outcome
