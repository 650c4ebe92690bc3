"""Acquires that the service keeps waiting: order, slices, caps, and clients that vanish at any instant."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from leased.aio_clock import LoopClock
from leased.model import Claim, Contended, Held
from leased.stores.memory import MemoryStore
from tests.server.running import Running, running
from tests.server.talking import Answer, Caller, ask, until

LONG = 60_000


@pytest.fixture
def service() -> Iterator[Running]:
    with running() as one:
        yield one


def take(service: Running, key: str = "k", **more: Any) -> Any:
    return ask(service.port, "/v1/locks/acquire", {"key": key, "ttlMs": LONG, **more}).json


def release(service: Running, token: str, key: str = "k") -> None:
    assert ask(service.port, "/v1/locks/release", {"key": key, "token": token}).json == {"released": True}


def state(service: Running, key: str = "k") -> str:
    return str(ask(service.port, f"/v1/locks/status?key={key}").json["state"])


def wait(service: Running, key: str = "k", *, wait_ms: int = LONG, **more: Any) -> Caller:
    return Caller(service.port, "/v1/locks/acquire", {"key": key, "ttlMs": LONG, "waitMs": wait_ms, **more})


def waiters(service: Running) -> int:
    return int(service.call(lambda: len(service.service.waiting)))


def wait_in_line(service: Running, number: int, **more: Any) -> Caller:
    """A waiter that is seen to stand in the line as the so-many-th."""
    caller = wait(service, **more)
    until(lambda: waiters(service) == number, what=f"waiter {number}")
    return caller


def nothing_is_left(service: Running, key: str = "k") -> None:
    until(lambda: waiters(service) == 0, what="an empty line")
    until(lambda: state(service, key) == "free", what="a free key")
    until(lambda: service.call(lambda: service.service.env.lines.waiting(key)) == 0, what="an empty line of the engine")


def test_a_free_key_is_granted_without_waiting(service: Running) -> None:
    """C055: `waitMs` costs nothing where nobody holds the key, and has nothing to do with the ttl."""
    granted = take(service, waitMs=10)
    assert (granted["acquired"], granted["waitedMs"], granted["ttlMs"]) == (True, 0, LONG)


def test_a_release_wakes_the_first_in_line(service: Running) -> None:
    """W3, C084: the waiter is granted the key at the release, with its whole lease before it; M5: what it has waited
    and what is left are told so that both together never reach beyond the end of the lease."""
    token = take(service)["token"]
    caller = wait_in_line(service, 1)
    release(service, token)
    granted = caller.answer().json
    assert granted["acquired"] is True
    assert granted["waitedMs"] >= 0
    assert granted["leftMs"] > LONG - 5_000
    assert granted["leftMs"] <= LONG


def test_a_wait_that_runs_out_says_how_long_it_was(service: Running) -> None:
    """C053: the answer comes at the end of the wait, names the holder, and leaves nobody in line."""
    take(service, client="holder@host:1")
    refused = take(service, waitMs=120)
    assert refused["acquired"] is False
    assert 100 <= refused["waitedMs"] < 5_000
    assert refused["holder"]["heldBy"] == "holder@host:1"
    assert waiters(service) == 0


def test_waiters_are_served_in_order_of_arrival(service: Running) -> None:
    """W4: who came first is granted first."""
    token = take(service)["token"]
    callers = [wait_in_line(service, number) for number in range(1, 6)]
    for caller in callers:
        release(service, token)
        token = caller.answer().json["token"]
    release(service, token)
    nothing_is_left(service)


@pytest.mark.parametrize("vanish", [Caller.close, Caller.reset])
def test_who_vanishes_while_waiting_gets_nothing(service: Running, vanish: Callable[[Caller], None]) -> None:
    """V3, C165: a waiter that closed or reset its connection leaves the line; the next one is granted the key."""
    token = take(service)["token"]
    gone = [wait_in_line(service, number) for number in (1, 2)]
    stays = wait_in_line(service, 3)
    for caller in gone:
        vanish(caller)
    until(lambda: waiters(service) == 1, what="the line of one")
    release(service, token)
    release(service, stays.answer().json["token"])
    nothing_is_left(service)


class HeldUp:
    """A memory store whose next acquire works, but whose answer is kept back until `go` is set."""

    def __init__(self) -> None:
        self.inner = MemoryStore(LoopClock())
        self.keep_back = False
        self.asked = 0
        self.go: asyncio.Event | None = None

    async def acquire(self, claim: Claim, *, timeout: float) -> Held | Contended:
        self.asked += 1
        outcome = await self.inner.acquire(claim, timeout=timeout)
        if self.keep_back and isinstance(outcome, Held):
            self.go = self.go or asyncio.Event()
            await self.go.wait()
        return outcome

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.mark.parametrize("in_line", [False, True])
@pytest.mark.parametrize("vanish", [Caller.close, Caller.reset])
def test_a_grant_that_loses_the_race_is_handed_back(vanish: Callable[[Caller], None], in_line: bool) -> None:
    """V3: the client goes after the store has granted, but before the service knows it: nothing is left held."""
    store = HeldUp()
    with running(cast("Any", store)) as service:
        token = take(service)["token"] if in_line else ""
        store.keep_back = True
        caller = wait_in_line(service, 1) if in_line else wait(service)
        if in_line:
            release(service, token)
        until(lambda: store.go is not None, what="the grant")
        assert state(service) == "held"
        vanish(caller)
        until(lambda: len(service.server.server_state.connections) == 0, what="the disconnect")
        service.call(lambda: store.go.set())  # type: ignore[union-attr]
        nothing_is_left(service)


def test_a_slice_ends_with_what_was_waited() -> None:
    """V3: one request is kept at most one slice; who was to wait longer is told to ask again, and whom it waits for."""
    with running(max_wait_slice=0.1) as service:
        take(service, client="holder@host:1")
        refused = take(service, waitMs=LONG)
        assert (refused["acquired"], refused["holder"]["heldBy"]) == (False, "holder@host:1")
        assert refused["waitedMs"] >= 100


def test_who_asks_again_at_once_keeps_its_place() -> None:
    """Between two slices a place in the line is kept: who came later is not served before."""
    with running(max_wait_slice=0.1, wait_linger=60.0) as service:
        token = take(service)["token"]
        first = "a" * 32
        assert take(service, waitMs=LONG, token=first)["acquired"] is False
        second = wait_in_line(service, 2, wait_ms=90, token="b" * 32)
        again = wait(service, token=first)
        until(lambda: listeners(service) == 2, what="both listen")
        release(service, token)
        granted = again.answer().json
        assert granted["acquired"] is True
        assert second.answer().json["acquired"] is False
        release(service, granted["token"])
        nothing_is_left(service)


def listeners(service: Running) -> int:
    waits = service.service.waiting._waits
    return int(service.call(lambda: sum(len(one.listeners) for one in waits.values())))


def test_what_is_won_between_two_slices_is_there_when_asked_again() -> None:
    """The lease counts from its grant, and the answer says truly how much of it is left."""
    with running(max_wait_slice=0.1, wait_linger=60.0) as service:
        token = take(service)["token"]
        assert take(service, waitMs=LONG, token="a" * 32)["acquired"] is False
        release(service, token)
        until(lambda: state(service) == "held", what="the grant")
        granted = take(service, waitMs=LONG, token="a" * 32)
        assert granted["acquired"] is True
        assert granted["leftMs"] <= LONG
        assert waiters(service) == 0


def test_who_does_not_ask_again_loses_its_place_and_what_it_won() -> None:
    """A place is kept for a moment only: neither the place nor a grant made to it stays."""
    with running(max_wait_slice=0.1, wait_linger=0.2) as service:
        token = take(service)["token"]
        assert take(service, waitMs=LONG, token="a" * 32)["acquired"] is False
        release(service, token)
        nothing_is_left(service)


def test_no_more_wait_than_the_limit() -> None:
    """R3: waiters are capped in total; what is more is told when to ask again, and holds no place."""
    with running(max_waiters=2) as service:
        token = take(service)["token"]
        callers = [wait_in_line(service, number) for number in (1, 2)]
        refused = wait(service).answer()
        assert (refused.status, refused.json["code"]) == (429, "lock_rate_limited")
        assert refused.headers["retry-after"] == str(refused.json["retryAfter"]) == "1"
        assert waiters(service) == 2
        callers[0].close()
        until(lambda: waiters(service) == 1, what="room")
        wait_in_line(service, 2).close()
        callers[1].close()
        release(service, token)
        nothing_is_left(service)


def test_two_copies_of_one_claim_are_one_claim(service: Running) -> None:
    """C168: the same claim twice in parallel, as a proxy may send it: one lease, the same answer; one copy's end ends
    nothing for the other."""
    token = take(service)["token"]
    copies = [wait(service, token="c" * 32) for _ in range(3)]
    until(lambda: listeners(service) == 3, what="three listeners")
    assert waiters(service) == 1
    copies.pop().close()
    until(lambda: listeners(service) == 2, what="two listeners")
    release(service, token)
    first, second = (copy.answer().json for copy in copies)
    assert first["acquired"] is second["acquired"] is True
    assert first["fencingToken"] == second["fencingToken"]
    assert state(service) == "held"


def test_who_waits_is_told_of_a_shutdown(tmp_path: Path) -> None:
    """V4: waiters are answered 503 with `Retry-After` and can ask elsewhere: nothing was applied; leases stay."""
    store = f"sqlite:{tmp_path}/locks.db"
    with running(store) as service:
        granted = take(service)
        callers = [wait_in_line(service, number) for number in range(1, 4)]
        service.stop()
        for answer in [caller.answer() for caller in callers]:
            assert told_to_ask_elsewhere(answer)
    with running(store) as service:
        assert state(service) == "held"
        release(service, granted["token"])
        nothing_is_left(service)


def told_to_ask_elsewhere(answer: Answer) -> bool:
    return (answer.status, answer.json["code"], answer.json["applied"], answer.headers["retry-after"]) == (
        503,
        "LOCK_STORE_UNAVAILABLE",
        False,
        "1",
    )


def test_a_claim_that_is_asked_while_the_service_ends_is_answered() -> None:
    """V4: a grant that is on its way when the shutdown begins reaches its client."""
    store = HeldUp()
    with running(cast("Any", store)) as service:
        token = take(service)["token"]
        store.keep_back = True
        caller = wait_in_line(service, 1)
        release(service, token)
        until(lambda: store.go is not None, what="the grant")
        service.stop()
        until(lambda: service.service.draining, what="the drain")
        assert service.service.waiting._draining
        service.call(lambda: store.go.set())  # type: ignore[union-attr]
        assert caller.answer().json["acquired"] is True


def test_nothing_is_granted_while_the_service_ends() -> None:
    """V4: an acquire that comes after the shutdown began is told to ask elsewhere; a release still works."""
    with running() as service:
        token = take(service)["token"]
        service.call(service.service.drain)
        answer = ask(service.port, "/v1/locks/acquire", {"key": "other", "ttlMs": LONG})
        assert told_to_ask_elsewhere(answer)
        batch = {"operations": [{"operation": "acquire", "key": "other", "ttlMs": LONG}]}
        (outcome,) = ask(service.port, "/v1/locks/batch", batch).json["outcomes"]
        assert (outcome["code"], outcome["applied"]) == ("LOCK_STORE_UNAVAILABLE", False)
        assert ask(service.port, "/readyz").status == 503
        assert ask(service.port, "/healthz").status == 200
        release(service, token)
