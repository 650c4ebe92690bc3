"""Work that must end whatever becomes of its caller: handing back what nobody wants any more. It grants nothing."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from leased.env import Env
from leased.errors import LeasedError, StoreNotUsable, StoreUnavailable
from leased.model import Claim
from leased.policy import CLEANUP_BUDGET, pause
from leased.store import Clock, Signal, Store


async def hand_back(store: Store, env: Env, claim: Claim, *, heard: int | None = None) -> None:
    """Abandon a claim, with `heard` as the store takes it, trying again within the clean-up budget; what the store
    never answers lapses by its ttl."""
    give_up_at, attempt = env.clock.now() + CLEANUP_BUDGET, 0
    while (left := give_up_at - env.clock.now()) > 0:
        try:
            timeout = min(left, env.timeout)
            await store.abandon(claim.key, claim.token, heard=heard, timeout=timeout)
            env.lines.released(claim.key)
            break
        except StoreNotUsable:
            break
        except StoreUnavailable:
            await env.clock.sleep(min(pause(attempt, env.chance), max(give_up_at - env.clock.now(), 0.0)))
            attempt += 1
        except LeasedError:  # the store answered, and refuses: nothing more can be done from here
            break


async def shielded(clock: Clock, make_work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run work to its end although the caller is cancelled or interrupted meanwhile; that is raised afterwards."""
    finished, struck = False, None
    done: Signal | None = None

    async def run() -> None:
        nonlocal finished
        try:
            await make_work()
            finished = True
        finally:
            if done is not None:
                done.set()

    for _ in range(2):  # where work runs in the caller's own thread an interrupt ends it: then it starts once more
        try:
            clock.start(run())
            break
        except BaseException as error:  # noqa: BLE001 (raised below, once the work is done)
            struck = error
            if finished:
                break
    if finished and struck is None:
        return
    done = clock.signal()
    until = clock.now() + 2 * CLEANUP_BUDGET
    while not finished and (left := until - clock.now()) > 0:
        try:
            if await done.wait(left):
                break
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 (raised below, once the work is done)
            struck = error
    if struck is not None:
        raise struck
