"""Joining, row by row: who goes alone, who leads, what a batch holds, and what a failure tells each of its members."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest

from leased.aio_clock import LoopClock
from leased.clocks import BlockingClock
from leased.errors import AccessDenied, LeasedError, StoreUnavailable
from leased.join import Joined
from leased.model import Acquire, Claim, Held, Operation, Released
from leased.store import Outcome
from leased.stores.memory import MemoryStore
from leased.timeline import Task
from tests.engine.rig import Rig, claim_on


def bench() -> tuple[Rig, Joined]:
    """A joined store."""
    rig = Rig()
    return rig, Joined(rig.store, rig.clock)


def busy(rig: Rig, joined: Joined, *, seconds: float = 1.0) -> Task:
    """A call that is on its way for so long."""
    rig.store.delay("acquire", seconds, key="slow")
    task = rig.start(joined.acquire(claim_on("slow"), timeout=30.0))
    rig.pass_time(seconds / 2)
    return task


def broken_batches(rig: Rig, error: BaseException) -> None:
    """From now on a batch as a whole fails with this."""

    async def fail(*args: object, **kwargs: object) -> None:
        raise error

    store: Any = rig.store
    store.many = fail


def test_a_caller_with_nobody_beside_him_is_served_in_his_own_step() -> None:
    """Alone nothing is started and nobody is waited for, whatever is asked; the answer is the store's."""
    rig, joined = bench()
    claim = claim_on()
    asked = [
        joined.acquire(claim, timeout=9),
        joined.renew("k", claim.token, ttl=60, number=3, timeout=9),
        joined.look("k", claim.token, timeout=9),
        joined.release("k", claim.token, timeout=9),
        joined.abandon("k", "other", timeout=9),
    ]
    answers = []
    for work in asked:
        before = rig.timeline.steps
        answers.append(rig.run(work, until=rig.timeline.now))
        assert rig.timeline.steps - before == 1
    granted, renewed, looked, released, abandoned = answers
    assert isinstance(granted, Held)
    assert (renewed.lease.renewal, looked.lease.renewal) == (3, 3)
    assert (released, abandoned) == (Released(), None)
    assert [call.operation for call in rig.store.calls] == ["acquire", "renew", "look", "release", "abandon"]


def test_whatever_is_asked_beside_a_call_waits_for_it_and_is_answered_in_a_batch() -> None:
    """While a call is on its way each operation waits for its end, leaves with the others, and has its own answer."""
    rig, joined = bench()
    keys = {operation: rig.granted(operation, ttl=60) for operation in ("renew", "look", "release", "abandon")}
    rig.store.calls.clear()
    slow = busy(rig, joined)
    renewed = rig.start(joined.renew("renew", keys["renew"].token, ttl=60, number=3, timeout=9))
    looked = rig.start(joined.look("look", keys["look"].token, timeout=9))
    released = rig.start(joined.release("release", keys["release"].token, timeout=9))
    abandoned = rig.start(joined.abandon("abandon", keys["abandon"].token, timeout=9))
    rig.pass_time(2)
    assert isinstance(slow.result(), Held)
    assert renewed.result().lease.renewal == 3
    assert looked.result().lease.token == keys["look"].token
    assert (released.result(), abandoned.result()) == (Released(), None)
    assert [rig.held(key) for key in keys] == [True, True, False, False]
    assert {(call.batched, round(call.at, 3)) for call in rig.store.calls[1:]} == {(True, 1.0)}


def test_a_failure_of_a_single_call_is_raised_and_not_repeated() -> None:
    """What the store raises for a caller alone reaches him; the operation is not asked again, and others are served."""
    rig, joined = bench()
    rig.store.fail("acquire", StoreUnavailable("broken"))
    with pytest.raises(StoreUnavailable, match="broken"):
        rig.run(joined.acquire(claim_on(), timeout=9), until=rig.timeline.now)
    assert len(rig.asked("acquire")) == 1
    assert isinstance(rig.run(joined.acquire(claim_on(), timeout=9), until=rig.timeline.now), Held)


def test_each_member_of_a_batch_that_broke_has_an_error_of_his_own() -> None:
    """One exception for all would collect the traces of all their callers; what kind it is stays, and `applied`."""
    rig, joined = bench()
    for whole in (StoreUnavailable("broken", applied=False), AccessDenied("no")):
        busy(rig, joined)
        tasks = [rig.start(joined.look(f"k{n}", "t", timeout=9)) for n in range(3)]
        broken_batches(rig, whole)
        rig.pass_time(2)
        errors = [task.error for task in tasks]
        assert [type(error) for error in errors] == [type(whole)] * 3
        if isinstance(whole, StoreUnavailable):
            assert len({id(error) for error in errors}) == 3
            assert [error.applied for error in errors if isinstance(error, StoreUnavailable)] == [False] * 3


def test_a_batch_that_ends_in_a_bug_leaves_its_members_unknown_and_serves_the_next() -> None:
    """Whatever ends a batch, its callers hear that nobody knows, and the lead is passed on."""
    rig, joined = bench()
    busy(rig, joined)
    tasks = [rig.start(joined.look(f"k{n}", "t", timeout=60)) for n in range(3)]
    broken_batches(rig, ZeroDivisionError("a bug"))
    rig.pass_time(2)
    assert [getattr(task.error, "applied", "none") for task in tasks] == [None] * 3
    assert all(isinstance(task.error, StoreUnavailable) for task in tasks)
    assert [type(task.error) for task in rig.timeline.failures if task not in rig.own] == [ZeroDivisionError]
    rig.timeline.failures.clear()
    assert isinstance(rig.run(joined.acquire(claim_on(), timeout=9), until=rig.timeline.now), Held)


def test_a_batch_of_one_has_the_time_that_its_caller_has_left() -> None:
    """W2: who waited half a second for the call before him has half a second less."""
    rig, joined = bench()
    busy(rig, joined)
    rig.start(joined.look("k", "t", timeout=9))
    rig.pass_time(2)
    assert [call.timeout for call in rig.store.calls if call.operation == "look"] == [pytest.approx(8.5)]


def test_only_claims_that_wait_pass_a_busy_store_with_a_line_of_its_own() -> None:
    """A claim that may be kept in the store's line, however shortly, goes by itself; one that does not wait is
    joined as ever."""
    rig = Rig()
    joined = Joined(rig.store, rig.clock, keeps_line=True)
    busy(rig, joined)
    rig.start(joined.acquire(replace(claim_on("waits"), wait=0.5), timeout=9))
    rig.start(joined.acquire(claim_on("tries"), timeout=9))
    rig.pass_time(2)
    at = {call.key: round(call.at, 3) for call in rig.store.calls}
    assert at == {"slow": 0.0, "waits": 0.5, "tries": 1.0}


def test_closing_closes_the_store() -> None:
    """L11: the store within is closed."""
    rig, joined = bench()
    rig.run(joined.close(), until=rig.timeline.now)
    assert rig.store.closed


Mode = Literal["blocking", "async", "any"]


class Sizes(MemoryStore):
    """A memory store that writes down which keys reach it together, with the time-out of their call."""

    def __init__(self, mode: Mode) -> None:
        super().__init__(BlockingClock())
        self.mode: Mode = mode
        self.batches: list[list[str]] = []
        self.timeouts: list[float] = []

    async def look(self, key: str, token: str, *, timeout: float) -> Any:
        self.batches.append([key])
        self.timeouts.append(timeout)
        await asyncio.sleep(0)
        return await super().look(key, token, timeout=timeout)

    async def many(self, operations: Sequence[Operation], *, timeout: float) -> Sequence[Outcome]:
        self.batches.append([of.claim.key if isinstance(of, Acquire) else of.key for of in operations])
        self.timeouts.append(timeout)
        return [LeasedError(f"{n}") for n, _ in enumerate(operations)]


async def _ask_together(joined: Joined, patience: dict[str, float]) -> None:
    asked = [joined.look(key, "t", timeout=seconds) for key, seconds in patience.items()]
    await asyncio.gather(*asked, return_exceptions=True)


def batches_of(mode: Mode, *together: dict[str, float]) -> list[list[str]]:
    """Who leaves together when callers with this patience come in one turn, one such turn after the other."""
    store = Sizes(mode)
    joined = Joined(store, LoopClock())

    async def turns() -> None:
        for patience in together:
            await _ask_together(joined, patience)

    asyncio.run(turns())
    return store.batches


def test_a_leader_that_blocks_takes_nobody_along_who_is_more_patient() -> None:
    """A blocking leader waits for the answers of his batch: who may wait longer than he may leaves after it. On a loop
    nobody blocks, and all leave together."""
    crowd = {"a": 9.0, "b": 9.0, "c": 9.0}
    mixed = {"first": 3.0, "patient": 9.0, "impatient": 2.0}
    assert batches_of("blocking", crowd, mixed)[2:] == [["first", "impatient"], ["patient"]]
    assert batches_of("async", crowd, mixed)[2:] == [["first", "patient", "impatient"]]
    assert batches_of("blocking", crowd, {"first": 3.0, "patient": 9.0})[2:] == [["first"], ["patient"]]


def test_the_most_patient_of_those_who_wait_leads_them_all() -> None:
    """The lead is passed on to the one who can take all others along."""
    mixed = {"alone": 9.0, "a": 2.0, "b": 8.0, "c": 5.0}
    assert batches_of("blocking", mixed) == [["alone"], ["a", "b", "c"]]


def test_two_are_a_crowd() -> None:
    """After a batch of two, the next two who come in one turn leave together; after a single one nobody waits."""
    pair = {"a": 9.0, "b": 9.0}
    assert batches_of("async", {"x": 9.0, **pair}, pair, pair) == [["x"], ["a", "b"], ["a", "b"], ["a", "b"]]


@pytest.mark.parametrize("mode", ["async", "blocking"])
def test_a_batch_is_full_at_its_largest_size(mode: Mode) -> None:
    """More than 512 who wait leave in batches of 512, in the order in which they came."""
    many = {f"k{n:04}": 60.0 for n in range(1_100)}
    batches = batches_of(mode, many)
    assert [len(batch) for batch in batches] == [1, 512, 512, 75]
    assert [key for batch in batches for key in batch] == list(many)


def test_claims_of_one_turn_may_be_of_one_key() -> None:
    """A batch is in the order of asking: of two claims of one key the first is granted."""
    store = MemoryStore(BlockingClock())
    joined = Joined(store, LoopClock())

    async def ask() -> list[str]:
        claims = [Claim("k", f"a-token-of-its-own-{n}", 30.0) for n in range(3)]
        return [
            type(answer).__name__ for answer in await asyncio.gather(*(joined.acquire(c, timeout=5) for c in claims))
        ]

    assert asyncio.run(ask()) == ["Held", "Contended", "Contended"]
