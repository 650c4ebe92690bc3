"""The registry: what the service remembers beside locks. A protocol and its values; it opens nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from leased.server.credentials import Credential, RuleSet

MAX_PAGE = 1000
"""Credentials or audit lines that one page holds at the most."""


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One decision that changed something, or denials of one principal within a second, counted.

    `at` is in seconds since the epoch. Text is kept as it came, and escaped where it is shown. `number` rises with
    each line; 0 before it is written.
    """

    project: str
    at: float
    actor: str
    action: str
    target: str = ""
    detail: str = ""
    count: int = 1
    number: int = 0


class Registry(Protocol):
    """Credentials, rule sets, request ids and audit lines of all projects.

    Each call is one step that is on disk before it returns. A change and its audit line are one step: neither is ever
    there without the other. Raises `StoreUnavailable` where there was no answer.
    """

    async def credential(self, id: str) -> Credential | None:
        """The credential with this id, revoked and expired ones too."""
        ...

    async def credentials(self, project: str, *, after: str = "", limit: int = MAX_PAGE) -> Sequence[Credential]:
        """A page of a project's credentials in the order of their ids."""
        ...

    async def add_credential(self, credential: Credential, line: AuditLine) -> None:
        """Keep a new credential."""
        ...

    async def revoke(self, credential: Credential, line: AuditLine) -> bool:
        """End a credential at the instant of the line; false if it had been revoked before."""
        ...

    async def rule_set(self, project: str) -> RuleSet | None:
        """The rule set of a project."""
        ...

    async def put_rule_set(self, rule_set: RuleSet, line: AuditLine) -> bool:
        """Install it, or replace the one of the same name; false if the project has one of another name."""
        ...

    async def delete_rule_set(self, project: str, name: str, *, line: AuditLine) -> bool:
        """Remove it; false if there is none of that name."""
        ...

    async def bind_request(self, project: str, request_id: str, *, digest: bytes, until: float, now: float) -> bytes:
        """What this id is bound to in this project: this digest until that instant, unless it is bound already."""
        ...

    async def write_audit(self, lines: Sequence[AuditLine]) -> None:
        """Append lines."""
        ...

    async def audit(self, project: str, *, before: int | None = None, limit: int = MAX_PAGE) -> Sequence[AuditLine]:
        """A page of a project's lines, the newest first, with numbers below `before`."""
        ...

    async def close(self) -> None:
        """Free what it needed. Nothing works afterwards."""
        ...
