"""History over replicas: what one has granted, another one renewed and ended, is one hold."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from leased.model import Status
from leased.server.access import open_gate
from leased.server.credentials import Credential, Wanted, check_wanted
from leased.server.gate import AccessGate
from leased.server.holds import HoldsKept, PastHold
from leased.server.keys import ApiKey, new_key
from leased.server.registries import Place, open_registry
from leased.server.registry_sqlite import SqliteRegistry
from leased.server.routes_looking import written
from leased.server.routes_manage import manage_routes
from leased.server.settings import Settings
from leased.wire import instant
from tests.server.access.test_registry import line
from tests.server.running import Running, running
from tests.server.talking import JSON, ask, until
from tests.server.ui.browsing import Browser

TOKEN = "token-of-the-hold"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Running, ApiKey]]:
    """Two services over one store and one registry."""
    directory = tmp_path_factory.mktemp("replicas")
    path, key = str(directory / "registry.db"), new_key()
    asyncio.run(begin(path, key))
    with ExitStack() as stack:
        both = []
        for _ in range(2):
            gate = open_gate(Settings(registry=path, project_requests=10**6))
            store = f"sqlite:{directory / 'locks.db'}"
            more: dict[str, Any] = {"holds": kept_by(gate), "registry": path, "min_ttl": 0.001, "ui": "act"}
            both.append(stack.enter_context(running(store, gate=gate, further=manage_routes(gate), **more)))
        yield both[0], both[1], key


async def begin(path: str, key: ApiKey) -> None:
    """Make the registry, with one credential in it."""
    opened = open_registry(Place(path), begin=True)
    wanted = check_wanted(Wanted("p", "member", "olga", role="owner"))
    await opened.registry.add_credential(Credential(id=key.id, digest=opened.hasher.digest(key), **wanted), line())
    await opened.registry.close()


def kept_by(gate: AccessGate) -> HoldsKept:
    """Its registry, as a place for history."""
    assert isinstance(gate.registry, SqliteRegistry)
    return gate.registry


def send(service: Running, path: str, body: Any = None, *, key: ApiKey) -> Any:
    """The answer of one of them."""
    answer = ask(service.port, path, body, headers={**JSON, "Authorization": f"Bearer {key.text}"})
    assert answer.status == 200, answer.body
    return answer.json


def holds(service: Running, name: str, *, key: ApiKey) -> Any:
    """The history of a key, as one of them tells it."""
    return send(service, f"/v1/locks/history?key={name}", key=key)["holds"]


def test_a_hold_that_moves_between_replicas_is_one_hold(replicas: tuple[Running, Running, ApiKey]) -> None:
    """V4: granted by one, renewed and released by the other: both tell the same."""
    one, two, key = replicas
    name, token = f"key-{next(_numbers)}", f"{TOKEN}-1"
    body = {"key": name, "token": token, "ttlMs": 60_000}
    number = send(one, "/v1/locks/acquire", body, key=key)["fencingToken"]
    assert [found["end"] for found in holds(one, name, key=key)] == [None]
    assert [found["end"] for found in holds(two, name, key=key)] == [None]
    send(two, "/v1/locks/renew", {**body, "renewal": 1}, key=key)
    send(two, "/v1/locks/release", {"key": name, "token": token}, key=key)
    assert [found["end"] for found in holds(two, name, key=key)] == ["released"]
    (seen,) = holds(one, name, key=key)
    assert (seen["end"], seen["fencingToken"], seen["heldBy"]) == ("released", number, "member:olga")


def test_who_signed_in_at_one_is_signed_in_at_all(replicas: tuple[Running, Running, ApiKey]) -> None:
    """V4, SEC15: the cookie and the page's token of one replica count at the other; its key, revoked at either, ends it
    at both within the moment that they remember it."""
    one, two, owner = replicas
    made = send(one, "/v1/credentials", {"kind": "member", "name": "night", "role": "admin"}, key=owner)["key"]
    browser, elsewhere = Browser(one), Browser(two)
    browser.token = browser.send("/ui/session", {"credential": made}).json["csrfToken"]
    elsewhere.cookie, elsewhere.token = browser.cookie, browser.token
    taken = elsewhere.send("/v1/locks/acquire", {"key": f"key-{next(_numbers)}", "ttlMs": 30_000})
    assert taken.status == 200
    assert taken.json["acquired"]
    assert elsewhere.load()["principal"]["name"] == "night"
    assert browser.send("/v1/locks").status == 200
    send(two, "/v1/credentials/revoke", {"id": made.split("_")[1]}, key=owner)
    assert elsewhere.send("/v1/locks").status == 401
    until(lambda: browser.send("/v1/locks").status == 401, what="the end of the session at the other one")


def test_a_hold_that_is_renewed_elsewhere_goes_on(replicas: tuple[Running, Running, ApiKey]) -> None:
    """Whoever granted it supposes that it ran out; the store knows better, and so does whoever reads the history."""
    one, two, key = replicas
    name, token = f"key-{next(_numbers)}", f"{TOKEN}-2"
    send(one, "/v1/locks/acquire", {"key": name, "token": token, "ttlMs": 300}, key=key)
    send(two, "/v1/locks/renew", {"key": name, "token": token, "ttlMs": 60_000, "renewal": 1}, key=key)
    registry = SqliteRegistry(one.service.settings.registry)

    def supposed() -> bool:
        holds(one, name, key=key)
        return asyncio.run(registry.holds("p", name, limit=1))[0].end == "expired"

    until(supposed)
    asyncio.run(registry.close())
    assert [found["end"] for found in holds(one, name, key=key)] == [None]
    send(two, "/v1/locks/force-release", {"key": name, "reason": "stuck"}, key=key)
    holds(two, name, key=key)
    (seen,) = holds(one, name, key=key)
    assert (seen["end"], seen["reason"]) == ("force_released", "stuck")


def test_what_nobody_saw_is_what_must_have_been() -> None:
    """A hold whose end nobody saw has ended before the next began, or else when the store says that it is over."""

    def hold(number: int, *, until: float) -> PastHold:
        return PastHold("p", "k", f"m{number}", number, "ada", None, 100.0 * number, 0.0, until)

    holds = [hold(3, until=390.0), hold(2, until=900.0), hold(1, until=150.0)]
    going_on = Status("k", state="held", fencing_token=3)
    for status, now, last in (
        (going_on, 350.0, (None, None)),
        (going_on, 999.0, (None, None)),
        (Status("k"), 350.0, ("released", 350.0)),
        (Status("k"), 999.0, ("expired", 390.0)),
        (Status("k", state="held", fencing_token=4), 350.0, ("released", 350.0)),
    ):
        found = [(one["end"], one["endedAt"]) for one in written(holds, status, now=now)]
        before = [("released", instant(300.0)), ("expired", instant(150.0))]
        assert found == [(last[0], None if last[1] is None else instant(last[1])), *before]


def test_an_end_that_was_only_supposed_gives_way_to_what_came_after() -> None:
    """SAFE1: an end that another replica saw was lost: the hold was supposed to go on to the end of its lease, but the
    next one began before that, and no two holds are shown at once; what the store says to be held has no end."""
    holds = [
        PastHold("p", "k", "m2", 2, "ada", None, 200.0, 0.0, 900.0, 210.0, "abandoned"),
        PastHold("p", "k", "m1", 1, "ada", None, 100.0, 0.0, 900.0, 900.0, "expired"),
    ]
    found = written(holds, Status("k", state="held", fencing_token=2), now=300.0)
    assert [(one["end"], one["endedAt"]) for one in found] == [(None, None), ("released", instant(200.0))]
