"""Every route by every kind of caller, over HTTP: each cell has an expected answer, and no denial tells of a key."""

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from leased.server.app import App
from leased.server.credentials import RuleSet
from leased.server.keys import ApiKey, new_key
from leased.server.routes_manage import manage_routes
from leased.server.service import Service
from leased.server.settings import Settings
from tests.server.access.gates import World
from tests.server.running import Running, running
from tests.server.talking import JSON, Answer, ask

HELD, FREE, UNKNOWN = "held-by-bob", "was-used-once", "never-seen"
TOKEN = "t" * 32
LOOK = {"operation": "look", "token": TOKEN}
CALLERS: dict[str, dict[str, Any]] = {
    "member": {"kind": "member", "name": "ada"},
    "member in ops": {"kind": "member", "name": "mia", "groups": [("ops", "team")]},
    "admin": {"kind": "member", "name": "amy", "role": "admin"},
    "owner": {"kind": "member", "name": "olga", "role": "owner"},
    "function": {"kind": "function", "name": "billing"},
    "service": {"kind": "service", "name": "probe"},
    "service locks.manage": {"kind": "service", "name": "deploy", "scopes": ["locks.manage"]},
    "service full": {"kind": "service", "name": "root", "scopes": ["full"]},
}
EVERYBODY = frozenset(CALLERS)
TAKERS = EVERYBODY - {"service", "member"}
"""Who may acquire and renew under the rule set of these tests: it lets in the team of operators."""

LOOKERS = frozenset({"admin", "owner", "service locks.manage", "service full"})
MANAGERS = frozenset({"admin", "owner", "service full"})
ANYBODY = EVERYBODY | {"nobody"}
"""Without a credential, too."""

Body = Callable[[str], Any]
ROWS: dict[str, tuple[frozenset[str], Body]] = {
    "POST /v1/locks/acquire": (TAKERS, lambda key: {"key": key, "ttlMs": 30_000}),
    "POST /v1/locks/renew": (TAKERS, lambda key: {"key": key, "token": TOKEN, "ttlMs": 30_000, "renewal": 1}),
    "POST /v1/locks/release": (EVERYBODY, lambda key: {"key": key, "token": TOKEN}),
    "POST /v1/locks/abandon": (EVERYBODY, lambda key: {"key": key, "token": TOKEN}),
    "POST /v1/locks/look": (EVERYBODY, lambda key: {"key": key, "token": TOKEN}),
    "POST /v1/locks/batch": (EVERYBODY, lambda key: {"operations": [{**LOOK, "key": key}]}),
    "POST /v1/locks/force-release": (LOOKERS, lambda key: {"key": key, "fencingToken": 1}),
    "GET /v1/locks/status": (EVERYBODY, lambda key: f"key={key}"),
    "GET /v1/locks": (LOOKERS, lambda key: f"prefix={key}"),
    "GET /v1/locks/waiters": (LOOKERS, lambda key: f"key={key}"),
    "GET /v1/locks/history": (LOOKERS, lambda key: f"key={key}"),
    "GET /v1/locks/contention": (LOOKERS, lambda key: f"key={key}"),
    "GET /v1/overview": (LOOKERS, lambda _: ""),
    "GET /v1/events": (LOOKERS, lambda _: ""),
    "GET /v1/capabilities": (EVERYBODY, lambda _: ""),
    "GET /healthz": (ANYBODY, lambda _: ""),
    "GET /readyz": (ANYBODY, lambda _: ""),
    "GET /metrics": (frozenset(), lambda _: ""),
    "GET /openapi.json": (ANYBODY, lambda _: ""),
    "GET /ui/session": (ANYBODY, lambda _: ""),
    "POST /ui/session": (frozenset(), lambda _: {"credential": "x"}),
    "DELETE /ui/session": (frozenset(), lambda _: ""),
    "POST /v1/credentials": (MANAGERS, lambda key: {"kind": "function", "name": key}),
    "GET /v1/credentials": (MANAGERS, lambda _: ""),
    "POST /v1/credentials/revoke": (MANAGERS, lambda _: {"id": "0" * 12}),
    "GET /v1/rule-set": (MANAGERS, lambda _: ""),
    "PUT /v1/rule-set": (MANAGERS, lambda _: {"ruleSet": {"name": "another", "resourceType": "lock"}}),
    "DELETE /v1/rule-set": (MANAGERS, lambda _: "name=another"),
    "POST /v1/rule-set/check": (MANAGERS, lambda key: {"userId": "ada", "key": key}),
    "GET /v1/audit": (MANAGERS, lambda _: ""),
}
STREAMS = {"GET /v1/events"}
"""Answers that do not end: that they begin is tested where events are."""


def test_every_route_has_a_row() -> None:
    """Issue 4: a new route without an expectation fails here."""
    world = World()
    app = App(Service(Settings(store="memory:matrix"), gate=world.gate), further=manage_routes(world.gate))
    assert {f"{route.method} {route.path}" for route in app.routes} == ROWS.keys()


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[World, Running]]:
    """A service where one key is held, one was used, and members need to be operators."""
    world = World()
    rules = "isMemberOf('ops', 'team')"
    with running(gate=world.gate, further=manage_routes(world.gate), registry="in memory") as service:
        bob = world.key("member", "bob")
        for key in (HELD, FREE):
            taken = {"key": key, "ttlMs": 600_000, "token": f"bob{key:x>16}"}
            assert send(service, "POST /v1/locks/acquire", taken, bob).json["acquired"]
        assert send(service, "POST /v1/locks/release", {"key": FREE, "token": f"bob{FREE:x>16}"}, bob).json["released"]
        world.registry.rule_sets["p"] = RuleSet("p", "ops", rules, rules)
        service.call(lambda: world.gate.forget("p"))
        yield world, service


def send(service: Running, row: str, body: Any, key: ApiKey | None) -> Answer:
    """One request; a body that is text is a query."""
    method, path = row.split(" ")
    headers = JSON if key is None else {**JSON, "Authorization": f"Bearer {key.text}"}
    if isinstance(body, str):
        return ask(service.port, f"{path}?{body}" if body else path, method=method, headers=headers)
    return ask(service.port, path, body, method=method, headers=headers)


def shape(answer: Answer) -> tuple[int, Any, Any]:
    """What a caller sees, but for what he sent himself (the key, the id of his request), its time and its length."""
    headers = {name: value for name, value in answer.headers.items() if name not in {"date", "content-length"}}
    body = re.sub(r'"requestId":"[^"]*"', "", answer.body.decode())
    return answer.status, headers, re.sub(f"'({HELD}|{FREE}|{UNKNOWN})'", "KEY", body)


@pytest.mark.parametrize("row", [row for row in ROWS if row not in STREAMS])
def test_each_cell_has_the_expected_answer(row: str, site: tuple[World, Running]) -> None:
    """A1, A2, A4, A5, SEC4, SEC7, SEC13: allowed or 403, and every 403 of a route is the same for every key."""
    world, service = site
    allowed, body = ROWS[row]
    for caller, key in itertools.product(CALLERS, (HELD, FREE, UNKNOWN)):
        answer = send(service, row, body(key), world.key(**CALLERS[caller]))
        if caller in allowed or caller in ANYBODY & allowed:
            assert answer.status in {200, 400}, (caller, key, answer.body)
        else:
            assert (answer.status, answer.json["code"]) == (403, "LOCK_ACCESS_DENIED"), (caller, key, answer.body)
    for caller in CALLERS.keys() - allowed:
        one = world.key(**CALLERS[caller])
        denials = {repr(shape(send(service, row, body(key), one))) for key in (HELD, FREE, UNKNOWN)}
        assert len(denials) == 1, denials
        assert not re.search(rf"\b(bob|ops|{HELD}|isMemberOf)\b", str(denials))


@pytest.mark.parametrize("row", [row for row in ROWS if row not in STREAMS])
def test_without_a_valid_credential_nothing_is_answered(row: str, site: tuple[World, Running]) -> None:
    """V5: 401 on every route but those that say whether the service lives, for no, wrong, revoked and expired keys."""
    world, service = site
    allowed, body = ROWS[row]
    keys = [None, new_key(), world.key(revoked_at=1.0), world.key(expires_at=2.0)]
    for key in keys:
        answer = send(service, row, body(HELD), key)
        if "nobody" in allowed:
            assert answer.status == 200
        elif not allowed:  # for nobody with a header: metrics have a token of their own, sessions are for browsers
            assert answer.status == 403
        else:
            assert (answer.status, answer.json["code"]) == (401, "UNAUTHENTICATED")
            assert answer.headers["www-authenticate"] == 'Bearer realm="leased"'


@pytest.mark.parametrize("row", [row for row in ROWS if "/locks" in row])
def test_a_key_of_another_project_is_as_if_it_were_unused(row: str, site: tuple[World, Running]) -> None:
    """A4, SEC4: whatever an owner elsewhere does with the name of a held key, he sees what an unused one gives."""
    world, service = site
    body = ROWS[row][1]
    elsewhere = [world.key("member", "olga", role="owner", project=project) for project in ("q", "r")]
    seen = [
        re.sub(r'"(token|requestId)":"[^"]*"|"(fencingToken|\w+Ms)":\d+|"\w+At":"[^"]*"', "", text)
        for text in (
            send(service, row, body(key), one).body.decode().replace(key, "K")
            for key, one in zip((HELD, UNKNOWN), elsewhere, strict=True)
        )
    ]
    assert seen[0] == seen[1]


def test_a_batch_is_judged_member_by_member(site: tuple[World, Running]) -> None:
    """A2, A4: in one batch a member may look and release, and is refused what he may not take."""
    world, service = site
    members = [
        {"operation": "acquire", "key": HELD, "ttlMs": 30_000},
        {"operation": "acquire", "key": UNKNOWN, "ttlMs": 30_000},
        {"operation": "renew", "key": HELD, "token": TOKEN, "ttlMs": 30_000, "renewal": 1},
        {"operation": "look", "key": HELD, "token": TOKEN},
        {"operation": "release", "key": HELD, "token": TOKEN},
    ]
    answer = send(service, "POST /v1/locks/batch", {"operations": members}, world.key(**CALLERS["member"]))
    outcomes = answer.json["outcomes"]
    assert [outcome.get("code") for outcome in outcomes] == ["LOCK_ACCESS_DENIED"] * 3 + [None] * 2
    assert {**outcomes[0], "detail": outcomes[0]["detail"].replace(HELD, UNKNOWN)} == outcomes[1]
