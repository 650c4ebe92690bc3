"""Who waits, who held, and what went on: as a page asks it of a service that works."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from typing import Any, cast

import pytest

from leased.aio_clock import LoopClock
from leased.model import Claim
from leased.server import overview as overview_module
from leased.stores.memory import MemoryStore
from tests.server.access.gates import World
from tests.server.running import Running, running
from tests.server.talking import JSON, Caller, ask, until
from tests.server.ui.browsing import guarded

_numbers = itertools.count()


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with running(wait_linger=0.05) as one:
        yield one


@pytest.fixture
def key() -> str:
    return f"key-{next(_numbers)}"


def post(service: Running, name: str, **body: Any) -> Any:
    answer = ask(service.port, f"/v1/locks/{name}", body)
    assert answer.status == 200, answer.body
    return answer.json


def history(service: Running, key: str, **query: object) -> Any:
    more = "".join(f"&{name}={value}" for name, value in query.items())
    return ask(service.port, f"/v1/locks/history?key={key}{more}").json


def ends(service: Running, key: str) -> list[tuple[str | None, str | None]]:
    return [(one["end"], one["reason"]) for one in history(service, key)["holds"]]


def token(key: str, number: int) -> str:
    """A token that no other test brings: each gets one grant at the most."""
    return f"token-{key:x>12}-{number}"


def test_waiters_are_shown_in_order(service: Running, key: str) -> None:
    """V3, A5: who waits, since when, for how long yet, and how many more than are shown."""
    post(service, "acquire", key=key, ttlMs=60_000)
    metadata = {"host": "web-3", "pid": 7, "program": "job.py"}
    waiting = {"key": key, "ttlMs": 60_000, "client": "a", "owner": "run-1", "metadata": metadata}
    with closing(Caller(service.port, "/v1/locks/acquire", {**waiting, "waitMs": 20_000})):
        until(lambda: shown(service, key)["total"] == 1)
        with closing(Caller(service.port, "/v1/locks/acquire", {**waiting, "client": "b", "waitMs": 600_000})):
            until(lambda: shown(service, key)["total"] == 2)
            first, second = shown(service, key)["waiters"]
            assert (first["heldBy"], first["owner"], second["heldBy"]) == ("a", "run-1", "b")
            assert first["metadata"] == metadata
            assert 0 <= first["waitedMs"] < 20_000
            assert 0 < first["leftMs"] <= 20_000 - first["waitedMs"]
            assert second["leftMs"] is None
        until(lambda: shown(service, key)["total"] == 1, what="the end of the second's place")
    until(lambda: shown(service, key)["total"] == 0, what="the end of the first's place")


def shown(service: Running, key: str) -> Any:
    return ask(service.port, f"/v1/locks/waiters?key={key}").json


def test_the_contention_of_a_key_is_there_whoever_looked_meanwhile(service: Running, key: str) -> None:
    """Issue 8: how often it was asked for in vain, and how many waited at the most, minute by minute; of other keys
    nothing."""

    def minutes(named: str) -> list[tuple[int, int]]:
        found = ask(service.port, f"/v1/locks/contention?key={named}").json
        assert found["intervalMs"] == 60_000
        return [(sample["contended"], sample["waiting"]) for sample in found["samples"]]

    assert set(minutes(key)) == {(0, 0)}
    post(service, "acquire", key=key, ttlMs=60_000)
    for _ in range(3):
        assert not post(service, "acquire", key=key, ttlMs=60_000)["acquired"]
    body = {"key": key, "ttlMs": 60_000, "waitMs": 20_000}
    with closing(Caller(service.port, "/v1/locks/acquire", body)):
        until(lambda: shown(service, key)["total"] == 1)
        assert max(waiting for _, waiting in minutes(key)) == 1
    assert sum(contended for contended, _ in minutes(key)) == 3
    assert set(minutes(f"{key}-other")) == {(0, 0)}


def test_the_history_tells_how_each_hold_ended(service: Running, key: str) -> None:
    """§7: released, released by force with its reason, taken again by its owner, run out, taken back; the last one
    goes on."""
    post(service, "acquire", key=key, ttlMs=60_000, token=token(key, 1), client="first")
    post(service, "release", key=key, token=token(key, 1))
    number = post(service, "acquire", key=key, ttlMs=60_000)["fencingToken"]
    post(service, "force-release", key=key, fencingToken=number, reason="stuck since noon")
    post(service, "acquire", key=key, ttlMs=60_000, token=token(key, 2), owner="maintenance")
    post(service, "acquire", key=key, ttlMs=1, token=token(key, 3), owner="maintenance")
    until(lambda: ask(service.port, f"/v1/locks/status?key={key}").json["state"] == "free")
    post(service, "acquire", key=key, ttlMs=60_000, token=token(key, 4))
    post(service, "abandon", key=key, token=token(key, 4))
    last = post(service, "acquire", key=key, ttlMs=60_000, owner="o", client="last")
    found = history(service, key)
    assert found["kept"]
    assert [(one["end"], one["reason"]) for one in found["holds"]] == [
        (None, None),
        ("abandoned", None),
        ("expired", None),
        ("released", "taken again by its owner"),
        ("force_released", "stuck since noon"),
        ("released", None),
    ]
    newest, oldest = found["holds"][0], found["holds"][-1]
    assert (newest["heldBy"], newest["owner"], newest["fencingToken"]) == ("last", "o", last["fencingToken"])
    assert (newest["endedAt"], oldest["heldBy"]) == (None, "first")
    for one in found["holds"][1:]:
        assert one["acquiredAt"] <= one["endedAt"]
    assert len(history(service, key, limit=2)["holds"]) == 2


def test_a_forced_release_without_a_number_is_in_the_history_with_its_reason(service: Running, key: str) -> None:
    """L7: whoever leaves the number out ends the last hold, and that one is shown as ended by force, also where its
    begin was seen by nobody here."""
    post(service, "acquire", key=key, ttlMs=60_000)
    history(service, key)
    service.service.journal._open.clear()  # as after a restart, or where another replica had granted it
    post(service, "force-release", key=key, reason="stuck since noon")
    (one,) = history(service, key)["holds"]
    assert (one["end"], one["reason"]) == ("force_released", "stuck since noon")


class Replaced:
    """A store in which the holder changes between two calls: who has ended, and another has begun."""

    def __init__(self) -> None:
        self.inner: Any = MemoryStore(LoopClock())
        self.replace: Callable[[], Awaitable[None]] | None = None

    async def status(self, key: str, *, timeout: float) -> Any:
        """What was true before the holder changed."""
        seen = await self.inner.status(key, timeout=timeout)
        replace, self.replace = self.replace, None
        if replace is not None:
            await replace()
        return seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_a_forced_release_without_a_number_names_no_other_hold(key: str) -> None:
    """L7, A5: the holder changes while it is asked for: the new one's hold ends by force, and the old one's did not."""
    store = Replaced()
    with running(cast("Any", store)) as service:
        post(service, "acquire", key=key, ttlMs=60_000, token=token(key, 1))

        async def replace() -> None:
            await store.inner.release(key, token(key, 1), timeout=1.0)
            await store.inner.acquire(Claim(key, token(key, 2), 60.0), timeout=1.0)

        store.replace = replace
        assert post(service, "force-release", key=key, reason="stuck") == {"released": True}
        assert ask(service.port, f"/v1/locks/status?key={key}").json["state"] == "free"
        assert ends(service, key) == [("released", None)]


def lapsed(service: Running, key: str, **terms: object) -> int:
    """A hold whose lease has run out, as the history knows; when it ended at the latest, in ms since the epoch."""
    post(service, "acquire", key=key, ttlMs=1, token=token(key, 1), **terms)
    until(lambda: ask(service.port, f"/v1/locks/status?key={key}").json["state"] != "held", what="the end")
    (one,) = history(service, key)["holds"]
    assert one["end"] == "expired"
    assert not service.call(lambda: key in service.service.journal._open)
    ended_at: int = one["endedAt"]
    return ended_at


@pytest.mark.parametrize("late", ["release", "renew", "look"])
def test_a_hold_that_ran_out_ended_then_and_not_when_its_holder_came_back(
    service: Running, key: str, late: str
) -> None:
    """M5: whoever outlives his lease is told so, and the history goes on saying when it ended."""
    ended_at = lapsed(service, key)
    more = {"ttlMs": 60_000} if late == "renew" else {}
    post(service, late, key=key, token=token(key, 1), **more)
    assert [(one["end"], one["endedAt"]) for one in history(service, key)["holds"]] == [("expired", ended_at)]


def test_to_open_a_closed_key_by_force_ends_no_hold(service: Running, key: str) -> None:
    """L7: what ran out, or was released, has ended so, also where somebody opens the key before its time."""
    ended_at = lapsed(service, key, lockDelayMs=600_000)
    number = history(service, key)["holds"][0]["fencingToken"]
    assert post(service, "force-release", key=key, fencingToken=number, reason="open") == {"released": True}
    assert [(one["end"], one["endedAt"]) for one in history(service, key)["holds"]] == [("expired", ended_at)]
    post(service, "acquire", key=key, ttlMs=60_000, token=token(key, 2), holdAtLeastMs=600_000)
    post(service, "release", key=key, token=token(key, 2))
    assert post(service, "force-release", key=key, reason="open") == {"released": True}
    assert ends(service, key) == [("released", None), ("expired", None)]


def test_an_abandon_that_may_have_been_declined_ends_no_hold(service: Running, key: str) -> None:
    """O5: with `heard` a hold that was renewed is spared, and the history shows it as going on."""
    post(service, "acquire", key=key, ttlMs=60_000, token=token(key, 1))
    post(service, "renew", key=key, ttlMs=90_000, token=token(key, 1))
    post(service, "abandon", key=key, token=token(key, 1), heard=1)
    assert ends(service, key) == [(None, None)]
    post(service, "release", key=key, token=token(key, 1))
    assert ends(service, key) == [("released", None)]


def test_a_hold_told_again_renewed_or_unknown_is_no_other_one(service: Running, key: str) -> None:
    """O5: a grant that is repeated, and renewals, are the same hold; releases that free nothing end none."""
    for _ in range(2):
        post(service, "acquire", key=key, ttlMs=60_000, token=token(key, 1))
    post(service, "renew", key=key, ttlMs=90_000, token=token(key, 1))
    post(service, "release", key=key, token=token(key, 9))
    post(service, "look", key=key, token=token(key, 9))
    assert ends(service, key) == [(None, None)]


def test_a_lease_that_ran_out_is_noticed_without_anybody_asking(service: Running, key: str) -> None:
    """A holder who vanished is in the history as one, once its lease is over."""
    post(service, "acquire", key=key, ttlMs=1)
    until(lambda: ends(service, key) == [("expired", None)])


def test_a_batch_is_in_the_history_too(service: Running, key: str) -> None:
    """Whatever grants and ends holds is seen."""
    members = [
        {"operation": "acquire", "key": key, "ttlMs": 60_000, "token": token(key, 1)},
        {"operation": "release", "key": key, "token": token(key, 1)},
    ]
    for member in members:
        post(service, "batch", operations=[member])
    assert ends(service, key) == [("released", None)]


def test_history_can_be_off(key: str) -> None:
    """Where none is kept, that is told, and nothing is remembered."""
    with running(history=0) as service:
        post(service, "acquire", key=key, ttlMs=60_000)
        assert history(service, key) == {"kept": False, "holds": []}


@pytest.mark.parametrize("query", ["key=k&limit=0", "key=k&limit=1001", "key=k&limit=x", "", "key=", "key=k&x=1"])
def test_what_cannot_be_shown_is_refused(query: str, service: Running) -> None:
    """V1: a query is read strictly."""
    assert ask(service.port, f"/v1/locks/history?{query}").status == 400


def test_the_overview_counts_what_each_project_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """V5: grants, refusals, waits and holds of one's own project, and none of others'."""
    monkeypatch.setattr("leased.server.journal.INTERVAL", 0.05)
    world = World()
    with guarded(world) as service:
        ada, olga = world.key("member", "ada"), world.key("member", "olga", role="owner")
        other = world.key("member", "olga", role="owner", project="q")

        def send(path: str, body: Any = None, *, by: Any = olga) -> Any:
            return ask(service.port, path, body, headers={**JSON, "Authorization": f"Bearer {by.text}"})

        take = {"key": "k", "ttlMs": 30_000, "token": token("k", 1)}
        assert send("/v1/locks/acquire", take).json["acquired"]
        assert not send("/v1/locks/acquire", {**take, "token": token("k", 2)}, by=ada).json["acquired"]
        assert send("/v1/locks", by=ada).status == 403
        assert send("/v1/locks/acquire", {**take, "ttlMs": 1}).status == 400
        members = [{"operation": "acquire", "key": "k", "ttlMs": 1, "token": token("k", 3)}]
        assert send("/v1/locks/batch", {"operations": members}).json["outcomes"][0]["status"] == 400
        number = send("/v1/locks/acquire", take).json["fencingToken"]
        assert send("/v1/locks/force-release", {"key": "k", "fencingToken": number}).json["released"]

        def total() -> dict[str, int]:
            names = ("acquired", "contended", "rejected", "denied", "limited", "forced")
            samples = send("/v1/overview").json["samples"]
            return {name: sum(sample[name] for sample in samples) for name in names}

        wanted = {"acquired": 2, "contended": 1, "rejected": 2, "denied": 1, "limited": 0, "forced": 1}
        until(lambda: total() == wanted, what="the sample")
        found = send("/v1/overview").json
        assert found["intervalMs"] == overview_module.INTERVAL * 1000
        assert found["samples"][-1]["held"] == 0
        assert any(sample["waitMs"] == {"p50": 0, "p95": 0, "p99": 0} for sample in found["samples"])
        assert any(sample["holdMs"] is not None for sample in found["samples"])
        assert found["limits"]["projectRequests"]["most"] == 10**6
        assert 0 < found["limits"]["projectRequests"]["left"] < 10**6
        assert found["limits"]["waiters"] == {"most": 10_000, "left": None}
        assert found["limits"]["eventStreams"] == {"most": 25, "left": 25}
        assert send("/v1/overview", by=other).json["samples"] == []
        assert send("/v1/locks/history?key=k", by=other).json["holds"] == []
        assert sum(one["contended"] for one in send("/v1/locks/contention?key=k").json["samples"]) == 1
        assert not any(one["contended"] for one in send("/v1/locks/contention?key=k", by=other).json["samples"])
        assert len(send("/v1/locks/history?key=k").json["holds"]) == 1


def test_too_many_requests_are_counted_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """R2: what a budget refuses is seen where the budgets are."""
    from leased.server.gate import Budgets
    from leased.server.limits import Budget

    monkeypatch.setattr("leased.server.journal.INTERVAL", 0.05)
    world = World(budgets=Budgets(attempts=Budget(1, 3600.0), requests=Budget(10**6, 1.0)))
    with guarded(world) as service:
        headers = {**JSON, "Authorization": f"Bearer {world.key(role='owner').text}"}
        take = {"key": "k", "ttlMs": 30_000}
        found = [ask(service.port, "/v1/locks/acquire", take, headers=headers).status for _ in range(3)]
        assert found == [200, 429, 429]

        def limited() -> int:
            samples = ask(service.port, "/v1/overview", headers=headers).json["samples"]
            return sum(sample["limited"] for sample in samples)

        until(lambda: limited() == 2)
