"""Gates for tests: a registry in memory, credentials made in one line, a clock that is moved by hand."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from leased.errors import StoreUnavailable
from leased.server.credentials import Credential, RuleSet, Wanted, check_wanted
from leased.server.gate import AccessGate, Budgets
from leased.server.keys import ApiKey, Hasher, new_key
from leased.server.limits import Budget
from leased.server.principals import Principal
from leased.server.registry import MAX_PAGE, AuditLine
from tests.server.access.test_limits import Watch

PLENTY = Budgets(*[Budget(10**6, 1.0)] * 3)


class MemoryRegistry:
    """See `Registry`; it counts how often it is asked, and can be broken."""

    def __init__(self) -> None:
        self.kept: dict[str, Credential] = {}
        self.rule_sets: dict[str, RuleSet] = {}
        self.lines: list[AuditLine] = []
        self.bound: dict[tuple[str, str], tuple[bytes, float]] = {}
        self.asked = 0
        self.broken = False
        self.closed = False

    def _ask(self) -> None:
        self.asked += 1
        if self.broken:
            raise StoreUnavailable("the registry gave no answer", applied=False)

    async def credential(self, id: str) -> Credential | None:
        self._ask()
        return self.kept.get(id)

    async def credentials(self, project: str, *, after: str = "", limit: int = MAX_PAGE) -> Sequence[Credential]:
        found = sorted((one for one in self.kept.values() if one.project == project), key=lambda one: one.id)
        return [one for one in found if one.id > after][:limit]

    async def add_credential(self, credential: Credential, line: AuditLine) -> None:
        self._ask()
        self.kept[credential.id] = credential
        self.lines.append(line)

    async def revoke(self, credential: Credential, line: AuditLine) -> bool:
        self._ask()
        found = self.kept.get(credential.id)
        if found is None or found.revoked_at is not None or found.project != credential.project:
            return False
        self.kept[found.id] = dataclasses.replace(found, revoked_at=line.at)
        self.lines.append(line)
        return True

    async def rule_set(self, project: str) -> RuleSet | None:
        self._ask()
        return self.rule_sets.get(project)

    async def put_rule_set(self, rule_set: RuleSet, line: AuditLine) -> bool:
        self._ask()
        if self.rule_sets.get(rule_set.project, rule_set).name != rule_set.name:
            return False
        self.rule_sets[rule_set.project] = rule_set
        self.lines.append(line)
        return True

    async def delete_rule_set(self, project: str, name: str, *, line: AuditLine) -> bool:
        self._ask()
        if project not in self.rule_sets or self.rule_sets[project].name != name:
            return False
        del self.rule_sets[project]
        self.lines.append(line)
        return True

    async def bind_request(self, project: str, request_id: str, *, digest: bytes, until: float, now: float) -> bytes:
        found = self.bound.get((project, request_id))
        if found is None or found[1] <= now:
            self.bound[project, request_id] = (digest, until)
        return self.bound[project, request_id][0]

    async def write_audit(self, lines: Sequence[AuditLine]) -> None:
        self._ask()
        self.lines += lines

    async def audit(self, project: str, *, before: int | None = None, limit: int = MAX_PAGE) -> Sequence[AuditLine]:
        found = [dataclasses.replace(line, number=at + 1) for at, line in enumerate(self.lines)]
        mine = [line for line in found if line.project == project and (before is None or line.number < before)]
        return mine[::-1][:limit]

    async def close(self) -> None:
        self.closed = True


class World:
    """A gate over a registry in memory."""

    def __init__(self, *, budgets: Budgets = PLENTY, now: Callable[[], float] | None = None, **more: Any) -> None:
        self.watch = Watch()
        clock = now or self.watch
        self.registry = MemoryRegistry()
        self.hasher = Hasher(b"p" * 32)
        self.gate = AccessGate(self.registry, hasher=self.hasher, wall=clock, now=clock, budgets=budgets, **more)

    def key(self, kind: str = "member", name: str = "ada", *, project: str = "p", **more: Any) -> ApiKey:
        """A new key, in the registry."""
        times = {part: more.pop(part) for part in ("expires_at", "revoked_at") if part in more}
        key = new_key()
        self.registry.kept[key.id] = Credential(
            id=key.id,
            digest=self.hasher.digest(key),
            **check_wanted(Wanted(project, kind, name, **more)),
            **times,
        )
        return key

    async def who(self, key: ApiKey | str, *, peer: str = "192.0.2.1") -> Principal:
        """Whom a key, or a whole header, stands for."""
        header = key if isinstance(key, str) else f"Bearer {key.text}"
        return await self.gate.identify(header, peer=peer)
