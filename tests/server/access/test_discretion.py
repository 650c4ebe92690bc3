"""A store or registry that fails, by every route and kind of caller: who is told where it is, and who is not."""

import itertools
import logging
from collections.abc import Iterator
from typing import Any, cast

import pytest

from leased.aio_clock import LoopClock
from leased.errors import StoreNotUsable, StoreUnavailable
from leased.server.keys import ApiKey, new_key
from leased.server.routes_manage import manage_routes
from leased.server.troubles import SAID_EVERY, ServiceUnavailable, Troubles
from leased.stores.memory import MemoryStore
from tests.server.access.gates import World
from tests.server.access.test_limits import Watch
from tests.server.access.test_matrix import CALLERS, MANAGERS, ROWS, STREAMS, send
from tests.server.running import Running, running
from tests.server.talking import ask

WHERE = "postgresql://keeper@db.internal:5432/locks"
HINT = "see that /var/lib/leased/locks.db can be written"
PLACES = ("keeper", "db.internal", ":5432", "postgresql", "/var/lib")
FAILURES = {
    "silent": StoreUnavailable(f"{WHERE} did not answer within 5 s", applied=None, hint=HINT),
    "unfit": StoreNotUsable(f"{WHERE} belongs to another program", hint=HINT),
}
ASKS_NO_STORE = ("/waiters", "/contention")
LOCKS = [row for row in ROWS if "/locks" in row and not row.endswith(ASKS_NO_STORE)]
STAYS = frozenset({"watch", "assurance", "close", "mode"})


class Failing:
    """A memory store that answers every question with the same failure, alone and in a batch."""

    def __init__(self) -> None:
        self.inner = MemoryStore(LoopClock())
        self.failure: StoreUnavailable = FAILURES["silent"]
        self.in_batches = False

    def __getattr__(self, name: str) -> Any:
        if name in STAYS:
            return getattr(self.inner, name)

        async def fail(*given: Any, **more: Any) -> Any:
            if name == "many" and self.in_batches:
                return [self.failure for _ in given[0]]
            raise self.failure

        return fail


Site = tuple[World, Failing, Running]


@pytest.fixture
def site() -> Iterator[Site]:
    world, store = World(), Failing()
    further = manage_routes(world.gate)
    with running(cast("Any", store), gate=world.gate, further=further, registry="in memory") as service:
        yield world, store, service


def places_in(text: object) -> list[str]:
    return [place for place in PLACES if place in str(text)]


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("row", [row for row in ROWS if row not in STREAMS])
def test_only_who_looks_after_the_project_is_told_where_the_store_is(row: str, failure: str, site: Site) -> None:
    """SEC, V6: whatever a caller asks for while the store fails, its path, address and user are told to admins, owners
    and services with the scope full, and to nobody else; all are told what they can act by."""
    world, store, service = site
    store.failure = FAILURES[failure]
    allowed, body = ROWS[row]
    for caller in CALLERS:
        answer = send(service, row, body("k"), world.key(**CALLERS[caller]))
        if row in LOCKS and row != "POST /v1/locks/batch" and caller in allowed:
            assert answer.status == 503
            assert (answer.json["code"], answer.json["applied"]) == (store.failure.code, store.failure.applied)
            assert bool(places_in(answer.body)) == (caller in MANAGERS), (caller, answer.body)
        elif caller not in MANAGERS:
            assert not places_in([answer.body, answer.headers]), (caller, answer.body)
    for key in (None, new_key()):
        answer = send(service, row, body("k"), key)
        assert not places_in([answer.body, answer.headers])


@pytest.mark.parametrize("in_batches", [False, True])
@pytest.mark.parametrize("caller", CALLERS)
def test_the_same_holds_for_each_operation_of_a_batch(caller: str, in_batches: bool, site: Site) -> None:
    """SEC: one outcome of a batch says no more than an answer of its own would."""
    world, store, service = site
    store.failure, store.in_batches = FAILURES["silent"], in_batches
    body = {"operations": [{"operation": "look", "key": "k", "token": "t" * 32}]}
    answer = send(service, "POST /v1/locks/batch", body, world.key(**CALLERS[caller]))
    problem = answer.json["outcomes"][0] if in_batches else answer.json
    assert (problem["code"], problem["applied"]) == ("LOCK_STORE_UNAVAILABLE", None)
    assert bool(places_in(answer.body)) == (caller in MANAGERS)


@pytest.mark.parametrize("caller", ["member in ops", "admin"])
def test_who_waits_is_told_no_more(caller: str, site: Site) -> None:
    """SEC: the last failure of a wait that ran out is told like any other."""
    world, store, service = site
    store.failure = FAILURES["silent"]
    body = {"key": "k", "ttlMs": 30_000, "waitMs": 50}
    answer = send(service, "POST /v1/locks/acquire", body, world.key(**CALLERS[caller]))
    assert answer.status == 503
    assert bool(places_in(answer.body)) == (caller in MANAGERS)


@pytest.mark.parametrize("row", [row for row in ROWS if row not in STREAMS])
def test_where_the_registry_is_nobody_learns_who_is_not_known(
    row: str, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC: a registry that fails has not said who asks, so that nobody is told where it is; and of those who are known,
    only who looks after the project."""
    world, _, service = site

    def fail() -> None:
        raise StoreUnavailable(f"the registry {WHERE} did not answer within 2 s", applied=False, hint=HINT)

    known = {caller: world.key(**CALLERS[caller]) for caller in CALLERS}
    for key in known.values():
        assert ask_capabilities(service, key) == 200
    monkeypatch.setattr(world.registry, "_ask", fail)
    allowed, body = ROWS[row]
    answer = send(service, row, body("k"), world.key())
    assert answer.status == 503 or "nobody" in allowed or not allowed
    assert not places_in([answer.body, answer.headers])
    for caller in CALLERS.keys() - MANAGERS:
        answer = send(service, row, body("k"), known[caller])
        assert not places_in([answer.body, answer.headers]), (caller, answer.body)


def ask_capabilities(service: Running, key: ApiKey) -> int:
    return send(service, "GET /v1/capabilities", "", key).status


def test_without_credentials_everybody_is_told() -> None:
    """V6: in the local mode everybody may do everything, and sees in the answer what is wrong."""
    store = Failing()
    with running(cast("Any", store)) as service:
        answer = ask(service.port, "/v1/locks/status?key=k")
        assert (answer.json["detail"], answer.json["hint"]) == (store.failure.message, HINT)
        assert not places_in(ask(service.port, "/readyz").body)


def test_the_log_has_all_of_it_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    """What a caller is not told, the log of the service says, under the id of his request; a flood of failures is one
    line a second with their number, and what the service says of itself is none."""
    watch = Watch()
    troubles = Troubles(now=watch)
    with caplog.at_level(logging.WARNING, logger="leased.server.troubles"):
        for failure, number in itertools.product(FAILURES.values(), range(5)):
            told = troubles.told(failure, to=None, request_id=f"r{number}")
            assert not places_in(told)
        own = ServiceUnavailable("the service is shutting down", applied=False)
        assert troubles.told(own, to=None) is own
        watch.time += SAID_EVERY
        troubles.told(FAILURES["unfit"], to=None, request_id="later")
    first, second = (record.getMessage() for record in caplog.records)
    assert WHERE in first
    assert HINT in first
    assert "[request r0; 0 others" in first
    assert "[request later; 9 others" in second
