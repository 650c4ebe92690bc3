"""Acquire, renew, release, restore: the lock logic, once, for every face. It awaits nothing but a store or a clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, TypeAlias

from leased.cleanup import hand_back, shielded
from leased.env import Env
from leased.errors import AccessDenied, LeasedError, RateLimited, StoreNotUsable, StoreUnavailable
from leased.hold import Hold
from leased.model import Claim, Contended, Held, Lost, LostReason, Released, Renewed, Status
from leased.policy import CLEANUP_BUDGET, call_timeout, lease_call_timeout, pause, usable
from leased.queue import Place
from leased.store import Store

_RENEWAL_NUMBER_TRIES = 3
_InVain: TypeAlias = Literal["acquire_failed", "contended", "rejected"]


async def acquire(
    store: Store,
    env: Env,
    claim: Claim,
    *,
    wait: float,
    brought: bool = False,
    fixed: bool = False,
    scoped: bool = False,
    retry_delay: float | None = None,
    cancelled: Callable[[], bool] | None = None,
    name: str | None = None,
) -> Hold | Contended:
    """Ask until granted or `wait` is used up. A single try that got no answer is repeated once.

    `brought`: the token is the caller's own, and no other is used. `fixed`: the lease counts from now, so each attempt
    asks for what is left of it. `scoped`: a block follows, and its owner stays reserved until `Lines.block_ended`.
    `cancelled`: asked while waiting; true ends the wait. `name`: the lock's, for events. Raises what the store raised,
    when that was the last word, and `StoreNotUsable` once the environment is closed.
    """
    if brought:
        claim = replace(claim, late=True)
    place = Place(env.lines, claim, clock=env.clock, waiting=wait > 0, cancelled=cancelled)
    asking = _Asking(store, env, claim, brought=brought)
    started = env.clock.now()
    fixed_until = started + claim.ttl if fixed else None
    try:
        if wait > 0:
            place.join()
        hold = await _ask_in_turn(
            asking, place, give_up_at=started + wait, wait=wait, fixed_until=fixed_until, retry_delay=retry_delay
        )
        status = None if hold is not None else asking.status or place.seen
        place.leave(block_of=hold if scoped else None)
        if hold is None:
            await asking.settle()
        else:
            hold.name = name
            if env.observer is not None:
                data = {"fencing_token": hold.fencing_token, "waited": env.clock.now() - started}
                env.tell("acquired", claim.key, lock=name, data=data)
            return hold
    except BaseException as error:
        place.leave()
        await asking.settle()
        if isinstance(error, Exception):  # else its caller went away
            _tell_in_vain(env, "acquire_failed", key=claim.key, lock=name, started=started, error=error)
        raise
    _tell_in_vain(env, "rejected" if wait > 0 else "contended", key=claim.key, lock=name, started=started)
    return Contended(status)


def _tell_in_vain(
    env: Env, how: _InVain, *, key: str, lock: str | None, started: float, error: Exception | None = None
) -> None:
    """An acquire ended without a grant."""
    if env.observer is not None:
        waited = env.clock.now() - started
        data = {"waited": waited} if error is None else {"error": type(error).__name__, "waited": waited}
        env.tell(how, key, lock=lock, data=data)


async def _ask_in_turn(
    asking: _Asking,
    place: Place,
    *,
    give_up_at: float,
    wait: float,
    fixed_until: float | None,
    retry_delay: float | None,
) -> Hold | None:
    """The loop of one acquire: take the turn, ask, rest. `None` when it ends in contention."""
    env, attempt = asking.env, 0
    while (place.may_ask() or await place.turn(give_up_at)) and not env.closed:
        now = env.clock.now()
        if fixed_until is not None:
            if usable(fixed_until - now, margin=env.margin) <= 0:
                break  # woken too late: it would be dead on arrival, and its terms could close the key
            own_id = asking.claim.request_id if attempt == 0 else None  # which is bound to the ttl of the first attempt
            asking.claim = replace(asking.claim, ttl=fixed_until - now, request_id=own_id)
        elif wait > 0:  # a store's own line would begin a fixed lease when its turn comes
            asking.claim = replace(asking.claim, wait=place.patience(give_up_at - now))
        hold = await asking.attempt(asked_at=now, timeout=call_timeout(env.timeout, wait=wait, left=give_up_at - now))
        if hold is not None and not env.closed:
            return hold
        if asking.refused or place.given_up() or env.closed:
            break
        left = give_up_at - env.clock.now()
        if left > 0:
            nap = pause(attempt, env.chance, retry_delay=retry_delay) - asking.waited
            if not asking.spent and nap > 0:  # else the store kept it in its own line long enough
                await place.rest(asking.store, asking.status, nap=nap, left=left, least=asking.retry_after)
        elif wait > 0 or attempt > 0 or not isinstance(asking.problem, StoreUnavailable):
            break
        attempt += 1
    if env.closed:  # a grant that comes after the closing is handed back
        raise StoreNotUsable("the locks were closed while waiting", hint="connect again")
    asking.finish(wait)
    return None


class _Asking:
    """The attempts of one acquire: the claim as it stands, what the store last said, and what is owed to it."""

    asked = False
    status: Status | None = None
    problem: LeasedError | None = None
    retry_after = 0.0
    waited = 0.0
    refused = False
    spent = False
    _told = 0  # how often the store may have said that this token holds the key, if each attempt arrived once
    _owed = False  # whether the store may hold, or come to hold, something for this token without our knowing

    def __init__(self, store: Store, env: Env, claim: Claim, *, brought: bool) -> None:
        self.store = store
        self.env = env
        self.claim = claim
        self._brought = brought

    async def attempt(self, *, asked_at: float, timeout: float) -> Hold | None:
        """Ask once, now. Without a grant, `status`, `problem`, `spent` and `refused` say what came of it."""
        env, claim, before, answered = self.env, self.claim, self.problem, False
        unsure, self._owed = self._owed, True  # an earlier attempt went unanswered: a refusal proves nothing then
        if self.asked:
            self.problem, self.retry_after, self.waited, self.spent = None, 0.0, 0.0, False
        self.asked = True
        self._told += 1
        try:
            outcome = await self.store.acquire(claim, timeout=timeout)
            if isinstance(outcome, Held):
                hold = Hold(outcome.lease, asked_at, claim=claim, margin=env.margin)
                if env.clock.now() < hold.valid_until:
                    hold.told = self._told if self._brought else None
                    return hold
                self.spent = True  # dead on arrival: handed back, and a token is granted once
                return None
            answered = True
            self.status = outcome.status or self.status
            self.waited = outcome.waited
            self.spent = outcome.ended  # granted unseen and over: a token is granted once
            if self.spent:
                self.problem = before  # nobody was found to have the key: why it was unseen is still the last word
        except StoreNotUsable as error:
            answered = error.applied is False
            raise
        except StoreUnavailable as error:
            self.problem, answered = error, error.applied is False
            if not answered:
                self.claim = replace(claim, late=True)
        except RateLimited as error:
            self.problem, self.retry_after, answered = error, error.retry_after or 0.0, True
        except LeasedError:  # refused: waiting would not help
            answered = True
            raise
        finally:
            self._owed = unsure or not answered
            self._told -= answered
            if self.spent:
                self._spend()
        return None

    def finish(self, wait: float) -> None:
        """The acquire ends without a grant: raise the problem that was its last word, if there was one."""
        if isinstance(self.problem, StoreUnavailable) and self._owed:
            self.problem.applied = None  # the last attempt may have had no effect, but an earlier one may have
            self._owed = not self._brought  # who brought the token will ask again with it, or abandon it
        if self.problem is not None and (wait <= 0 or isinstance(self.problem, StoreUnavailable)):
            raise self.problem  # a waiter that met limits only ran out of time

    async def settle(self) -> None:
        """Hand back what is owed, whatever becomes of the caller.

        Under a token that was brought, only what nobody else was told of, as far as that can be known: who brought it
        may have asked with it before, and believe in that answer.
        """
        if self._owed:
            store, env, claim = self.store, self.env, self.claim
            heard = self._told if self._brought else None
            await shielded(env.clock, lambda: hand_back(store, env, claim, heard=heard))

    def _spend(self) -> None:
        """Go on with a new token, unless the caller chose it; hand back at once what is owed: it may be in our way."""
        if self._brought:
            self.refused = True
            return
        if self._owed:
            self.env.clock.start(hand_back(self.store, self.env, self.claim))
        self._owed = False
        self.claim = replace(self.claim, token=self.env.mint(), late=False)


async def drop(store: Store, env: Env, hold: Hold, claim: Claim) -> None:
    """A grant whose caller went away before it could use it: hand it back, unless somebody else was told of it."""
    hold.end("released")
    env.lines.block_ended(hold.key, hold.owner, hold=hold)
    try:
        await shielded(env.clock, lambda: hand_back(store, env, replace(claim, token=hold.token), heard=hold.told))
    finally:
        _tell_released(env, hold)


async def renew(store: Store, env: Env, hold: Hold, *, ttl: float | None = None) -> Renewed:
    """Set the expiry to now + ttl at the store, and belief with it. Raises what the store raised; without an answer
    the earlier deadline stands."""
    ttl = hold.ttl if ttl is None else ttl
    for _ in range(_RENEWAL_NUMBER_TRIES):
        over = renewal_over(hold, env.clock.now())
        if over is not None:
            return over
        asked_at = env.clock.now()
        number = hold.ask(asked_at, ttl=ttl)
        timeout = lease_call_timeout(env.timeout, ttl=ttl)
        outcome = await store.renew(hold.key, hold.token, ttl=ttl, number=number, timeout=timeout)
        apply_renewal(env, hold, outcome, asked_at=asked_at)
        if isinstance(outcome, Held) and outcome.lease.renewal <= number:
            break  # else this number had been used before: go on from the store's
    over = renewal_over(hold, env.clock.now())
    return Renewed() if over is None else over


def renewal_over(hold: Hold, now: float) -> Renewed | None:
    """Why the hold cannot be renewed, or `None` while it can."""
    reason = hold.lost_reason(now)
    if reason is not None:
        return Renewed("lease_lost", reason)
    return Renewed("released") if hold.ended is not None else None


def apply_renewal(env: Env, hold: Hold, outcome: Held | Lost, *, asked_at: float) -> None:
    """Take over what the store answered to a renewal."""
    if isinstance(outcome, Held):
        if hold.renewed(outcome.lease, asked_at, now=env.clock.now()) and env.observer is not None:
            env.tell("renewed", hold.key, lock=hold.name)
    else:
        early = outcome.reason == "expired" and hold.lost_reason(env.clock.now()) is None
        lose(env, hold, "store_lost" if early else outcome.reason)


def lose(env: Env, hold: Hold, reason: LostReason) -> None:
    """End a hold as lost: mark it, then stop the body, then tell; its hooks run last, where they can harm nothing."""
    if hold.end(reason):
        _tell_loss(env, hold, reason)


def _tell_loss(env: Env, hold: Hold, reason: LostReason) -> None:
    if hold.stop is not None:
        hold.stop()
    if reason == "retaken":
        env.tell("retaken", hold.key, lock=hold.name, data={"fencing_token": hold.fencing_token})
    env.tell("lost", hold.key, lock=hold.name, data={"reason": reason, "fencing_token": hold.fencing_token})
    if hold.lost_hooks and env.run_hook is not None:
        hold.run_lost_hooks(env.run_hook)


async def release(store: Store, env: Env, hold: Hold) -> Released:
    """Free the key, trying again within the clean-up budget. Belief has ended before the first byte leaves.

    | hold | answer |
    | --- | --- |
    | released before | `already_released` |
    | forked or handed over | `not_holder`, without asking: it is another process's now |
    | held, or lost in another way | what the store says; `not_holder` after an unanswered try counts as freed, for it
      cannot be told from our own release |

    Raises `StoreUnavailable` when the store never answered: the handle can be released again.
    """
    if hold.outcome is not None:
        return Released("already_released")
    reason = hold.lost_reason(env.clock.now())
    if reason in ("forked", "handed_over"):
        return Released("not_holder")
    if reason is not None:
        lose(env, hold, reason)
    believed = hold.end("released")
    try:
        outcome = await _release_until_answered(store, env, hold)
    except LeasedError as error:
        _tell_release_failed(env, hold, error)
        raise
    except GeneratorExit:
        raise
    except BaseException:  # cancelled or interrupted: the caller goes, the release is still made
        hold.release_unanswered = True
        await shielded(env.clock, lambda: _release_for_the_gone(store, env, hold, believed=believed))
        raise
    hold.outcome = outcome
    if not outcome.reason:
        env.lines.released(hold.key)
        _tell_released(env, hold)
    elif believed:
        hold.ended = "expired" if outcome.reason == "expired" else await _why_lost(store, env, hold)
        _tell_loss(env, hold, hold.ended)
    return outcome


async def _release_for_the_gone(store: Store, env: Env, hold: Hold, *, believed: bool) -> None:
    try:
        outcome = hold.outcome = await _release_until_answered(store, env, hold)
    except LeasedError as error:  # nobody is left to be told; the handle can be released again
        _tell_release_failed(env, hold, error)
        return
    env.lines.released(hold.key)
    if not outcome.reason:
        _tell_released(env, hold)
    elif believed:
        reason = "expired" if outcome.reason == "expired" else "taken"
        env.tell("lost", hold.key, lock=hold.name, data={"reason": reason, "fencing_token": hold.fencing_token})


def _tell_released(env: Env, hold: Hold) -> None:
    if env.observer is not None:
        env.tell("released", hold.key, lock=hold.name, data={"fencing_token": hold.fencing_token})


def _tell_release_failed(env: Env, hold: Hold, error: LeasedError) -> None:
    data = {"error": type(error).__name__, "fencing_token": hold.fencing_token}
    env.tell("release_failed", hold.key, lock=hold.name, data=data)


async def _release_until_answered(store: Store, env: Env, hold: Hold) -> Released:
    left, attempt = CLEANUP_BUDGET, 0
    give_up_at = env.clock.now() + left
    while True:
        try:
            outcome = await store.release(hold.key, hold.token, late=hold.late, timeout=min(left, env.timeout))
            return Released() if hold.release_unanswered and outcome.reason == "not_holder" else outcome
        except StoreNotUsable:
            raise
        except StoreUnavailable as error:
            hold.release_unanswered = hold.release_unanswered or error.applied is not False
            nap = pause(attempt, env.chance)
            if env.clock.now() + nap >= give_up_at:
                raise
        await env.clock.sleep(nap)
        left, attempt = give_up_at - env.clock.now(), attempt + 1


async def _why_lost(store: Store, env: Env, hold: Hold) -> LostReason:
    """The best knowledge of why a lease that was believed in is no longer ours."""
    try:
        outcome = await store.look(hold.key, hold.token, timeout=lease_call_timeout(env.timeout, ttl=hold.ttl))
    except (AccessDenied, StoreUnavailable, RateLimited):
        return "taken"
    return outcome.reason if isinstance(outcome, Lost) else "taken"


async def restore(store: Store, env: Env, claim: Claim) -> Hold | Lost:
    """A hold on a lease that was granted elsewhere to this claim's token, after asking the store once."""
    asked_at = env.clock.now()
    outcome = await store.look(claim.key, claim.token, timeout=env.timeout)
    if isinstance(outcome, Lost):
        return outcome
    hold = Hold(outcome.lease, asked_at, claim=replace(claim, ttl=outcome.lease.ttl), margin=env.margin)
    if env.clock.now() < hold.valid_until:
        env.tell("restored", hold.key, data={"fencing_token": hold.fencing_token})
        return hold
    return Lost("expired")
