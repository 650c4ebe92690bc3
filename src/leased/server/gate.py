"""The gate of a service with credentials: who asks, whether his budgets, rights and rules let him. It touches no lock.

The order of decisions is the order of a request: credential, budget of the project, attempts of the member, rights of
the kind of principal, rules. What proves itself by a token of a lease (release, abandon, look) is never refused.
"""

from __future__ import annotations

import functools
import hashlib
import ipaddress
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from leased.checks import shown
from leased.errors import (
    AccessDenied,
    InvalidRequest,
    LeasedError,
    RateLimited,
    StoreNotUsable,
    StoreUnavailable,
    Unauthenticated,
)
from leased.server.audit import Audit
from leased.server.credentials import Credential, RuleSet
from leased.server.gate_memory import GRACE, Memory, Together
from leased.server.keys import FORM, PREFIX, Hasher, read_key
from leased.server.limits import Budget, Meter
from leased.server.principals import Action, Principal, Shown
from leased.server.registry import Registry
from leased.server.request_ids import RequestIds
from leased.server.rights import NEVER_REFUSED, is_ruled, may
from leased.server.rules import Asked, DenyAll, Rule, compile_rule
from leased.server.sessions import PURPOSE, Session, Sessions
from leased.server.tokens import Tokens
from leased.server.usage import OwnUsage, SharedUsage, Shelf, Usage
from leased.store import again

ATTEMPTS = Budget(600, 3600.0)
"""Acquire attempts of one member: ten a minute is more than a person, and less than a loop."""

REQUESTS = Budget(600, 60.0)
"""Requests of one project, of every kind: renewals of 100 holders with a ttl of 30 s use all of it."""

FAILURES = Budget(60, 60.0)
"""Requests without a valid credential from one address."""

_NOT_KNOWN = "was it made for this service, and copied whole? An admin of the project can make a new one"
_BY_RULE = "an admin of the project finds the reason in its audit log, and can change its rules or the credential"
_BY_RIGHT = "this is for admins and owners, and for service credentials with the scope locks.manage or full"
_BY_RANK = "this is for admins and owners, and for service credentials with the scope full"
_PROVED = "whoever has the token of the lease may do that"
_DENIED: Mapping[Action, tuple[str, str]] = {
    "acquire": ("take the key {key}", _BY_RULE),
    "renew": ("renew a lease on the key {key}", _BY_RULE),
    "look": ("look at the key {key}", _PROVED),
    "release": ("release the key {key}", _PROVED),
    "abandon": ("abandon the key {key}", _PROVED),
    "status": ("see the key {key}", _BY_RIGHT),
    "list": ("list the keys", _BY_RIGHT),
    "force-release": ("release the key {key} by force", _BY_RIGHT),
    "events": ("follow the events", _BY_RIGHT),
    "capabilities": ("see what the service gives", _BY_RIGHT),
    "manage": ("manage credentials and rules, or read the audit log,", _BY_RANK),
}
"""What is told for an action, whatever the reason; see `AccessGate._denied`."""

_log = logging.getLogger("leased.server.gate")


@dataclass(frozen=True, slots=True)
class Budgets:
    """How much each may do: acquire attempts of a member, requests of a project, failed logins from an address."""

    attempts: Budget = ATTEMPTS
    requests: Budget = REQUESTS
    failures: Budget = FAILURES


class _RegistrySilent(Exception):
    """The registry gave no answer about an API key; of tokens it knows nothing."""

    def __init__(self, problem: StoreUnavailable) -> None:
        super().__init__(problem)
        self.problem = problem


class AccessGate:
    """See `Gate`. `wall` gives seconds since the epoch, `now` seconds on a clock that never goes back.

    `shelf`: where budgets are kept for all replicas; without one each process has its own. `grace`: see `GRACE`.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        hasher: Hasher,
        wall: Callable[[], float],
        now: Callable[[], float],
        tokens: Tokens | None = None,
        budgets: Budgets | None = None,
        audit_required: bool = True,
        shelf: Shelf | None = None,
        grace: float = GRACE,
        check_key: Callable[[Principal, str], None] | None = None,
    ) -> None:
        """`check_key` raises `InvalidRequest` for a key that the service allows to nobody: no rule is asked of it."""
        budgets = budgets or Budgets()
        self.registry = registry
        self.hasher = hasher
        self.wall = wall
        self.audit = Audit(registry, wall=wall, now=now, required=audit_required)
        self._tokens = tokens
        self._check_key = check_key
        self._budgets = budgets
        self._usage: Usage = (
            OwnUsage(requests=budgets.requests, attempts=budgets.attempts, now=now)
            if shelf is None
            else SharedUsage(shelf, requests=budgets.requests, attempts=budgets.attempts, now=now)
        )
        self._failures = Meter(budgets.failures, now=now)
        self._request_ids = RequestIds(registry, wall=wall)
        self._principals: Memory[tuple[Principal, float]] = Memory(now=now, wall=wall, grace=grace)
        self._rules: Memory[Mapping[str, Rule]] = Memory(now=now, wall=wall, grace=grace)
        self._credentials: Together[Credential | None] = Together()
        self._rule_sets: Together[RuleSet | None] = Together()
        self.sessions = Sessions(hasher.key_for(PURPOSE + (b"" if tokens is None else tokens.mark)), wall=wall)

    def recall(self, shown: Shown) -> Principal | None:
        """See `Gate`."""
        known = self._principals.get(_name_of(shown))
        return None if known is None else known[0]

    async def identify(self, shown: Shown, *, peer: str) -> Principal:
        """See `Gate`. A valid credential is never refused for the failures of others at its address."""
        return (await self._identified(shown, peer=peer))[0]

    async def sign_in(self, credential: str, *, peer: str, life: float) -> tuple[Principal, Session]:
        """See `Gate`."""
        principal, end = await self._identified(f"Bearer {credential}", peer=peer)
        return principal, self.sessions.begin(principal, life=life, end=end)

    async def _identified(self, shown: Shown, *, peer: str) -> tuple[Principal, float]:
        """Who shows this, and until when that is true at the most."""
        name = _name_of(shown)
        ended = isinstance(shown, Session) and not self.sessions.lasts(shown)
        known = None if ended else self._principals.get(name)
        if known is not None:
            return known
        generation = self._principals.generation
        try:
            found = await self._identify(shown)
        except Unauthenticated:
            late = self._failures.take(_network(peer))
            if late > 0:
                raise _limited("too many requests without a valid credential came from this address", late) from None
            raise
        except _RegistrySilent as silence:
            return self._principals.get_old(name, silence.problem)
        principal, until = found
        self._principals.put(name, found, project=principal.project, generation=generation, until=until)
        return found

    async def admit(self, principal: Principal, action: Action, *, key: str = "", count: int = 1) -> None:
        """See `Gate`."""
        if action in NEVER_REFUSED:
            self._usage.spend(principal.project, count=count)
            return
        await self._use_budgets(principal, action, count=count)
        if not may(principal, action):
            raise self._denied(principal, action, key=key, reason="not a right of this kind of principal")
        if is_ruled(principal, action):
            if self._check_key is not None:
                self._check_key(principal, key)
            rules = await self._rules_of(principal.project)
            rule = rules.get(action) if rules else None
            if rules and rule is None:
                raise self._denied(principal, action, key=key, reason="the rule set has no rule for it")
            if rule is not None:
                verdict = rule.judge(Asked(principal.id, principal.role, key, principal.groups))
                if not verdict.allowed:
                    raise self._denied(principal, action, key=key, reason=verdict.error or "the rule says no")

    async def check(self) -> None:
        """See `Gate`. A registry that gives no answer may do so the next moment, and some are let in meanwhile."""
        try:
            await self.registry.credential("")
        except StoreNotUsable:
            raise
        except StoreUnavailable:
            return

    def spend(self, principal: Principal) -> None:
        """See `Gate`."""
        self._usage.spend(principal.project)

    async def bind(self, principal: Principal, request_id: str, *, parameters: Mapping[str, Any]) -> None:
        """See `Gate`."""
        await self._request_ids.bind(principal, request_id, parameters=parameters)

    async def record(self, principal: Principal, action: Action, *, key: str, detail: str) -> None:
        """See `Gate`."""
        await self.audit.record(principal, action, target=key, detail=detail)

    def budgets(self, project: str) -> dict[str, dict[str, int | None]]:
        """See `Gate`."""
        own = self._budgets
        return {
            "projectRequests": _told(own.requests, left=self._usage.left(project)),
            "memberAttempts": _told(own.attempts, left=None),
            "failedLogins": _told(own.failures, left=None),
        }

    async def close(self) -> None:
        """See `Gate`."""
        await self._usage.close()
        await self.audit.close()
        if self._tokens is not None:
            await self._tokens.close()
        await self.registry.close()

    def forget(self, project: str) -> None:
        """Look up anew what is of this project: something of it was changed, and look-ups that run may not know."""
        self._principals.forget(project)
        self._rules.forget(project)

    def doubt(self, project: str) -> None:
        """The same where it may have been changed; while the registry is silent what was known before still counts."""
        self._principals.doubt(project)
        self._rules.doubt(project)

    async def _identify(self, shown: Shown) -> tuple[Principal, float]:
        """Who it is, and until when at the most."""
        if isinstance(shown, Session):
            return await self._signed_in(shown)
        authorization = shown
        if not authorization:
            raise Unauthenticated("a credential is needed", hint="send the header Authorization: Bearer lk_…")
        scheme, _, credential = authorization.partition(" ")
        credential = credential.strip(" ")
        if scheme.lower() != "bearer" or not credential:
            raise Unauthenticated("the credential is not understood", hint="send Authorization: Bearer lk_…")
        if not credential.startswith(PREFIX):
            if self._tokens is None:
                raise Unauthenticated("the credential is no API key", hint="tokens are not set up on this service")
            return await self._tokens.identify(credential)
        key = read_key(credential)
        if key is None:
            raise Unauthenticated("the API key is not valid: it has not the form of one", hint=FORM)
        found = await self._look_up(key.id)
        if not self.hasher.matches(key, None if found is None else found.digest) or found is None:
            raise Unauthenticated("the API key is not valid", hint=_NOT_KNOWN)
        return self._good(found)

    async def _signed_in(self, session: Session) -> tuple[Principal, float]:
        """For whom a browser's sign-in stands, as long as it and its credential last."""
        if not self.sessions.lasts(session):
            raise Unauthenticated("the sign-in has ended", hint="sign in again")
        if session.member is not None:
            return session.member, session.until
        found = await self._look_up(session.credential)
        if found is None:
            raise Unauthenticated("the API key of the sign-in is not valid any more", hint=_NOT_KNOWN)
        principal, until = self._good(found)
        return principal, min(until, session.until)

    async def _look_up(self, id: str) -> Credential | None:
        name = id, self._principals.generation  # what was begun before a change may not know of it
        try:
            return await self._credentials.get(name, partial(self.registry.credential, id))
        except StoreUnavailable as problem:
            raise _RegistrySilent(again(problem)) from problem

    def _good(self, found: Credential) -> tuple[Principal, float]:
        """Whom a credential stands for, and until when, unless that is over."""
        if found.revoked_at is not None:
            raise Unauthenticated("the API key was revoked", hint="ask an admin of the project for a new one")
        if found.expires_at is not None and self.wall() >= found.expires_at:
            raise Unauthenticated("the API key has expired", hint="ask an admin of the project for a new one")
        return found.principal(), math.inf if found.expires_at is None else found.expires_at

    async def _use_budgets(self, principal: Principal, action: Action, *, count: int) -> None:
        """Count the request against its project and, as an attempt, its member: against both or, refused, neither."""
        member = principal.id if action == "acquire" and principal.kind == "member" else None
        try:
            requests, attempts = await self._usage.take(principal.project, member, count=count)
        except StoreUnavailable as problem:
            if action != "renew" or isinstance(problem, StoreNotUsable):
                raise
            requests, attempts = self._usage.take_alone(principal.project, count=count), 0.0  # or holders would lose
        if requests > 0:
            raise _limited(f"the project has used its requests ({self._budgets.requests})", requests)
        if attempts > 0:
            raise _limited(f"{principal.name} has used its acquire attempts ({self._budgets.attempts})", attempts)

    async def _rules_of(self, project: str) -> Mapping[str, Rule]:
        """The rules by operation; empty where there is no rule set. What cannot be used any more denies."""
        known = self._rules.get(project)
        if known is None:
            generation = self._rules.generation
            try:
                name = project, generation
                rule_set = await self._rule_sets.get(name, partial(self.registry.rule_set, project))
            except StoreUnavailable as problem:
                return self._rules.get_old(project, again(problem))
            known = {} if rule_set is None else _usable(rule_set)
            self._rules.put(project, known, project=project, generation=generation)
        return known

    def _denied(self, principal: Principal, action: Action, *, key: str, reason: str) -> AccessDenied:
        """One answer for every reason and every state of the key; the reason is for the audit log alone."""
        self.audit.denied(principal, action, target=key, detail=reason)
        what, hint = _DENIED[action]
        return AccessDenied(
            f"{principal.name} may not {what.format(key=repr(shown(key)))} in the project {principal.project}",
            hint=hint,
        )


def _name_of(shown: Shown) -> bytes | str:
    """By which a credential is remembered, so that nothing of it is."""
    if isinstance(shown, Session):
        return shown.id
    return hashlib.sha256((shown or "").encode(errors="surrogatepass")).digest()


def _usable(rule_set: RuleSet) -> Mapping[str, Rule]:
    """The rules of a rule set, and one for `""`, which is no operation: a set is never as good as none."""
    rules: dict[str, Rule] = {"": DenyAll()}
    for operation, source in (("acquire", rule_set.acquire), ("renew", rule_set.renew)):
        if source is not None:
            rules[operation] = _compiled(source)
    return rules


@functools.lru_cache(maxsize=1000)
def _compiled(source: str) -> Rule:
    try:
        return compile_rule(source)
    except LeasedError as error:  # it could when it was installed: the library has changed
        _log.error("an access rule cannot be used any more, and denies: %s", error.message)
        return DenyAll(error.message)


def _told(budget: Budget, *, left: int | None) -> dict[str, int | None]:
    return {"most": budget.uses, "perMs": round(budget.seconds * 1000), "left": left}


def _limited(what: str, late: float) -> LeasedError:
    if late == math.inf:
        return InvalidRequest(f"{what}; so many operations never pass at once", hint="send smaller batches")
    return RateLimited(what, retry_after=late)


def _network(peer: str) -> str:
    """The address, or of an IPv6 address the network: whoever has one has all of it."""
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv6Address):
        return str(address.ipv4_mapped or ipaddress.IPv6Network((int(address), 64), strict=False))
    return str(address)
