"""Managing over HTTP: credentials, the rule set and the audit log, by whoever may, of his own project."""

import asyncio
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from leased.errors import StoreUnavailable
from leased.server.credentials import Credential
from leased.server.gate_memory import REMEMBERED_FOR
from leased.server.keys import ApiKey
from leased.server.registry import AuditLine
from leased.server.routes_manage import manage_routes
from tests.server.access.gates import World
from tests.server.running import Running, running
from tests.server.talking import JSON, ask

OWN = {
    "ruleSet": {"name": "own", "resourceType": "lock"},
    "rules": {"lock": {"acquire": "record.key.startsWith('user:' + user.userId + ':')", "renew": "true"}},
}
TTL = {"ttlMs": 30_000}


class Site:
    """A running service with credentials."""

    def __init__(self, world: World, service: Running) -> None:
        self.world = world
        self.service = service
        self.owner = world.key("member", "olga", role="owner")
        self.ada = world.key("member", "ada")

    def ask(self, method: str, path: str, body: Any = None, *, key: ApiKey | None = None) -> tuple[int, Any]:
        """Status and body of an answer; asked by the owner unless another key is given."""
        headers = {"Authorization": f"Bearer {(key or self.owner).text}", **JSON}
        sent = body.encode() if isinstance(body, str) else body
        answer = ask(self.service.port, f"/v1/{path}", sent, method=method, headers=headers)
        return answer.status, answer.json

    def acquire(self, name: str, *, key: ApiKey) -> int:
        """The status of an acquire."""
        return self.ask("POST", "locks/acquire", {"key": name, **TTL}, key=key)[0]


@pytest.fixture
def site() -> Iterator[Site]:
    """A service whose gate has a registry in memory."""
    world = World()
    with running(gate=world.gate, further=manage_routes(world.gate), registry="in memory") as service:
        yield Site(world, service)


def test_a_key_is_made_used_listed_and_revoked(site: Site) -> None:
    """V5: shown once, valid at once, listed without its secret, and refused as soon as it is revoked."""
    wanted = {"kind": "member", "name": "bob", "groups": [{"name": "ops", "kind": "team"}], "expiresInMs": 60_000}
    status, made = site.ask("POST", "credentials", wanted)
    assert status == 200
    key, about = made["key"], made["credential"]
    assert key.startswith(f"lk_{about['id']}_")
    assert (about["name"], about["role"], about["state"]) == ("bob", "member", "active")
    assert about["expiresAt"] == "1970-01-01T00:17:40.000Z"
    bob = ApiKey(about["id"], key.rpartition("_")[2])
    assert site.acquire("k", key=bob) == 200
    status, page = site.ask("GET", "credentials")
    assert {one["name"] for one in page["credentials"]} == {"olga", "ada", "bob"}
    assert bob.secret not in str(page)
    status, revoked = site.ask("POST", "credentials/revoke", {"id": bob.id})
    assert (status, revoked["credential"]["state"]) == (200, "revoked")
    assert site.acquire("k", key=bob) == 401
    lines = site.ask("GET", "audit")[1]["lines"]
    assert [(line["actor"], line["action"], line["target"]) for line in lines] == [
        ("member:olga", "revoke credential", bob.id),
        ("member:olga", "create credential", bob.id),
    ]
    assert lines[1]["detail"] == "member:bob, role member, groups ops (team)"
    assert bob.secret not in str(lines)


def test_pages_follow_one_another(site: Site) -> None:
    """S9: lists come in pages, bounded whatever is asked."""
    wanted = [{"kind": "function", "name": f"f{number}"} for number in range(5)]
    made = [site.ask("POST", "credentials", body)[1]["credential"]["id"] for body in wanted]
    seen: list[str] = []
    while page := site.ask("GET", f"credentials?limit=2&after={seen[-1] if seen else ''}")[1]["credentials"]:
        assert len(page) <= 2
        seen += [one["id"] for one in page]
    assert set(made) < set(seen)
    assert seen == sorted(seen)
    newest = site.ask("GET", "audit?limit=3")[1]["lines"]
    older = site.ask("GET", f"audit?before={newest[-1]['number']}")[1]["lines"]
    assert len(newest + older) == 5
    for query in ("limit=0", "limit=1001", "limit=x", "limit=1e3"):
        assert site.ask("GET", f"credentials?{query}")[0] == 400
    assert site.ask("GET", "audit?before=-1")[0] == 400


def test_rules_are_installed_checked_and_deleted(site: Site) -> None:
    """A1, A2, A3: one rule set, which closes at once, is not shown to whom it refuses, and opens again when deleted."""
    assert site.ask("GET", "rule-set") == (200, {"installed": False})
    assert site.acquire("k", key=site.ada) == 200
    status, installed = site.ask("PUT", "rule-set", OWN)
    assert status == 200
    assert {name: installed[name] for name in OWN} == OWN
    assert installed["installedBy"] == "member:olga"
    assert site.ask("GET", "rule-set")[1] == installed
    status, refusal = site.ask("POST", "locks/acquire", {"key": "k2", **TTL}, key=site.ada)
    assert (status, refusal["code"]) == (403, "LOCK_ACCESS_DENIED")
    assert "startsWith" not in str(refusal)
    assert site.acquire("user:ada:k", key=site.ada) == 200
    assert site.acquire("k2", key=site.owner) == 200
    status, second = site.ask("PUT", "rule-set", {**OWN, "ruleSet": {"name": "two", "resourceType": "lock"}})
    assert (status, "would be a second one" in second["detail"]) == (400, True)
    assert site.ask("DELETE", "rule-set?name=two")[0] == 400
    assert site.ask("DELETE", "rule-set?name=own") == (200, {"deleted": "own"})
    assert site.acquire("k3", key=site.ada) == 200


def test_a_rule_set_can_be_tried_before_it_is_installed(site: Site) -> None:
    """A6: evaluate for a given user and key."""
    asked = {"userId": "ada", "key": "user:ada:k", "document": OWN}
    assert site.ask("POST", "rule-set/check", asked)[1] == {
        "acquire": {"allowed": True, "reason": "the rule says yes"},
        "renew": {"allowed": True, "reason": "the rule says yes"},
    }
    asked["userId"] = "bob"
    assert site.ask("POST", "rule-set/check", asked)[1]["acquire"] == {"allowed": False, "reason": "the rule says no"}
    asked["role"] = "admin"
    assert site.ask("POST", "rule-set/check", asked)[1]["acquire"]["reason"] == "admins and owners pass"
    del asked["document"], asked["role"]
    assert site.ask("POST", "rule-set/check", asked)[1]["acquire"]["reason"] == "there is no rule set"
    assert site.ask("GET", "rule-set")[1] == {"installed": False}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "credentials", {"kind": "robot", "name": "a"}),
        ("POST", "credentials", {"kind": "member", "name": "1:a"}),
        ("POST", "credentials", {"kind": "member", "name": ""}),
        ("POST", "credentials", {"kind": "member", "name": "a", "role": "root"}),
        ("POST", "credentials", {"kind": "member", "name": "a", "scopes": ["full"]}),
        ("POST", "credentials", {"kind": "service", "name": "a", "scopes": ["everything"]}),
        ("POST", "credentials", {"kind": "member", "name": "a", "expiresInMs": 1}),
        ("POST", "credentials", {"kind": "member", "name": "a", "project": "q"}),
        ("POST", "credentials", '{"kind": "member", "name": "a", "name": "b"}'),
        ("POST", "credentials", '{"kind": "member", "name": "a", "groups": [{"name": "x", "name": "y", "kind": "z"}]}'),
        ("POST", "credentials/revoke", {"id": "0" * 12}),
        ("POST", "credentials/revoke", {"id": "q\x00"}),
        ("GET", "credentials?after=%00", None),
        ("DELETE", "rule-set?name=%00", None),
        ("PUT", "rule-set", {}),
        ("PUT", "rule-set", {**OWN, "rules": {"lock": {"acquire": "1 +"}}}),
        ("PUT", "rule-set", {**OWN, "rules": {"lock": {"release": "true"}}}),
        ("PUT", "rule-set", {**OWN, "ruleSet": {"name": "a b", "resourceType": "lock"}}),
        ("POST", "rule-set/check", {"userId": "1:a", "key": "k"}),
    ],
)
def test_what_makes_no_sense_is_a_bad_request(site: Site, method: str, path: str, body: Any) -> None:
    """A3, SEC12: strict bodies; the message says what is wrong."""
    status, answer = site.ask(method, path, body)
    assert (status, answer["code"] in {"LOCK_INVALID_REQUEST", "LOCK_KEY_INVALID"}) == (400, True), answer


ROUTES: Mapping[tuple[str, str], Any] = {
    ("POST", "credentials"): {"kind": "function", "name": "f"},
    ("GET", "credentials"): None,
    ("POST", "credentials/revoke"): {"id": "0" * 12},
    ("GET", "rule-set"): None,
    ("PUT", "rule-set"): OWN,
    ("DELETE", "rule-set?name=own"): None,
    ("POST", "rule-set/check"): {"userId": "ada", "key": "k"},
    ("GET", "audit"): None,
}
MANAGERS = {"owner", "admin", "full"}


def test_only_managers_manage_and_only_their_own_project(site: Site) -> None:
    """A5, SEC13: every route by every kind of principal; credentials of another project are as if not there."""
    key = site.world.key
    callers = {
        "owner": site.owner,
        "admin": key("member", "a", role="admin"),
        "full": key("service", "s", scopes=["full"]),
        "member": site.ada,
        "function": key("function", "f"),
        "service": key("service", "s"),
        "locks.manage": key("service", "s", scopes=["locks.manage"]),
    }
    for (caller, used), ((method, path), body) in itertools.product(callers.items(), ROUTES.items()):
        status, answer = site.ask(method, path, body, key=used)
        if caller in MANAGERS:
            assert status in {200, 400}, (caller, method, path, answer)
        else:
            assert (status, answer["code"]) == (403, "LOCK_ACCESS_DENIED"), (caller, method, path)
    elsewhere = key("member", "olga", role="owner", project="q")
    assert {one["name"] for one in site.ask("GET", "credentials", key=elsewhere)[1]["credentials"]} == {"olga"}
    assert site.ask("GET", "audit", key=elsewhere)[1] == {"lines": []}
    assert site.ask("POST", "credentials/revoke", {"id": site.ada.id}, key=elsewhere)[0] == 400
    assert site.acquire("k", key=site.ada) == 200


def test_every_route_for_managers_has_a_row(site: Site) -> None:
    """Issue 4: a new route without an expectation fails here."""
    rows = {(method, f"/v1/{path.partition('?')[0]}") for method, path in ROUTES}
    assert {(route.method, route.path) for route in manage_routes(site.world.gate)} == rows


def test_an_admin_hands_out_no_more_than_he_has(site: Site) -> None:
    """V5: neither owners nor full services are made or ended by an admin."""
    admin = site.world.key("member", "a", role="admin")
    full = site.world.key("service", "s", scopes=["full"])
    for body in (
        {"kind": "member", "name": "x", "role": "owner"},
        {"kind": "service", "name": "x", "scopes": ["full"]},
    ):
        assert site.ask("POST", "credentials", body, key=admin)[0] == 403
        assert site.ask("POST", "credentials", body)[0] == 200
    for target in (site.owner, full):
        assert site.ask("POST", "credentials/revoke", {"id": target.id}, key=admin)[0] == 403
    assert site.ask("POST", "credentials", {"kind": "member", "name": "x", "role": "admin"}, key=admin)[0] == 200


def test_what_an_admin_is_denied_is_in_the_audit_log(site: Site) -> None:
    """A5, SEC14: who reaches for more than he has leaves a line, though he may manage."""
    admin = site.world.key("member", "adam", role="admin")
    assert site.ask("POST", "credentials", {"kind": "member", "name": "x", "role": "owner"}, key=admin)[0] == 403
    other = site.world.key("member", "ann", role="admin")
    assert site.ask("POST", "credentials/revoke", {"id": site.owner.id}, key=other)[0] == 403
    asyncio.run_coroutine_threadsafe(site.world.gate.audit.flush(), site.service.loop).result(10.0)
    assert [(line.actor, line.action, line.target) for line in site.world.registry.lines] == [
        ("member:adam", "denied create credential", "member:x"),
        ("member:ann", "denied revoke credential", site.owner.id),
    ]


def test_a_hold_outlives_the_right_to_it(site: Site) -> None:
    """A4: when access is revoked, renew is 403 and release works, with any credential of the project."""
    held = site.ask("POST", "locks/acquire", {"key": "k", **TTL}, key=site.ada)[1]
    assert site.ask("PUT", "rule-set", OWN | {"rules": {"lock": {"acquire": "true"}}})[0] == 200
    proof = {"key": "k", "token": held["token"]}
    status, refusal = site.ask("POST", "locks/renew", {**proof, **TTL, "renewal": 1}, key=site.ada)
    assert (status, refusal["code"]) == (403, "LOCK_ACCESS_DENIED")
    assert site.ask("POST", "locks/look", proof, key=site.ada)[1]["held"] is True
    bystander = site.world.key("service", "s")
    assert site.ask("POST", "locks/release", proof, key=bystander) == (200, {"released": True})


def test_keys_of_projects_never_meet(site: Site) -> None:
    """V5, A4: another project's key is an unused key of one's own, whatever is done with it."""
    stranger = site.world.key("member", "ada", project="q", role="owner")
    held = site.ask("POST", "locks/acquire", {"key": "k", **TTL}, key=site.ada)[1]
    assert held["acquired"] is True
    unused = site.ask("GET", "locks/status?key=unused", key=stranger)[1]
    seen = site.ask("GET", "locks/status?key=k", key=stranger)[1]
    assert {**seen, "key": ""} == {**unused, "key": ""}
    assert site.ask("GET", "locks", key=stranger)[1] == {"locks": []}
    proof = {"key": "k", "token": held["token"]}
    assert site.ask("POST", "locks/release", proof, key=stranger)[1] == {"released": False, "reason": "not_holder"}
    assert site.ask("POST", "locks/force-release", {"key": "k"}, key=stranger)[0] == 200
    assert site.ask("POST", "locks/acquire", {"key": "k", **TTL}, key=stranger)[1]["acquired"] is True
    assert site.ask("POST", "locks/look", proof, key=site.ada)[1]["held"] is True


def test_a_revocation_without_an_answer_counts_if_it_was_made(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """V5, O6: where nobody knows whether a key was revoked, the service looks it up anew; and while the registry is
    silent it still lets in whom it knew before, for holders must be able to renew."""
    made = site.world.registry.revoke

    async def unanswered(credential: Credential, line: AuditLine) -> bool:
        await made(credential, line)
        site.world.registry.broken = True
        raise StoreUnavailable("the answer was lost", applied=None)

    monkeypatch.setattr(site.world.registry, "revoke", unanswered)
    held = site.ask("POST", "locks/acquire", {"key": "k", **TTL}, key=site.ada)[1]
    status, answer = site.ask("POST", "credentials/revoke", {"id": site.ada.id})
    assert (status, answer["applied"]) == (503, None)
    renewal = {"key": "k", "token": held["token"], **TTL}
    assert site.ask("POST", "locks/renew", renewal, key=site.ada)[0] == 200
    site.world.registry.broken = False
    assert site.acquire("l", key=site.ada) == 401


def test_a_key_revoked_elsewhere_works_no_longer_than_seconds(site: Site) -> None:
    """V5: what the command line does beside the running service counts soon."""
    assert site.acquire("k", key=site.ada) == 200
    del site.world.registry.kept[site.ada.id]
    site.world.watch.time += REMEMBERED_FOR
    assert site.acquire("k", key=site.ada) == 401


def test_a_request_id_belongs_to_one_acquire(site: Site) -> None:
    """O6, C168: the same again has one lease and one answer; another key, ttl, owner or principal is a conflict."""
    asked: dict[str, Any] = {"key": "k", "token": "t" * 32, "requestId": "r1", **TTL}
    first = site.ask("POST", "locks/acquire", asked, key=site.ada)[1]
    again = site.ask("POST", "locks/acquire", asked | {"metadata": {"pid": 7}}, key=site.ada)[1]
    assert first["acquired"] is again["acquired"] is True
    assert first["fencingToken"] == again["fencingToken"]
    bob = site.world.key("member", "bob")
    others: list[tuple[dict[str, Any], ApiKey]] = [
        ({"key": "l"}, site.ada),
        ({"ttlMs": 31_000}, site.ada),
        ({"owner": "run"}, site.ada),
        ({"lockDelayMs": 1000}, site.ada),
        ({}, bob),
        ({"token": "u" * 32, "key": "l"}, bob),
    ]
    for changed, key in others:
        status, refusal = site.ask("POST", "locks/acquire", asked | changed, key=key)
        assert (status, refusal["code"]) == (409, "LOCK_REQUEST_CONFLICT"), changed
        batch = {"operations": [{"operation": "acquire", **asked, **changed}]}
        (outcome,) = site.ask("POST", "locks/batch", batch, key=key)[1]["outcomes"]
        assert outcome["code"] == "LOCK_REQUEST_CONFLICT"
    assert site.ask("GET", "locks/status?key=l")[1]["held"] is False
    proof = {"key": "k", "token": "t" * 32, "requestId": "r1"}
    assert site.ask("POST", "locks/release", proof, key=bob)[1]["released"] is True
    late = site.ask("POST", "locks/acquire", asked, key=site.ada)[1]
    assert (late["acquired"], late.get("token")) == (False, None)


def test_a_forced_release_is_in_the_audit_log_or_does_not_happen(site: Site) -> None:
    """A5, SEC14: with the fencing token it was aimed at and the reason; without a line the lease lives on."""
    held = site.ask("POST", "locks/acquire", {"key": "k", **TTL}, key=site.ada)[1]
    aim = {"key": "k", "fencingToken": held["fencingToken"], "reason": "stuck\nsince May"}
    site.world.registry.broken = True
    assert site.ask("POST", "locks/force-release", aim)[0] == 503
    site.world.registry.broken = False
    assert site.ask("GET", "locks/status?key=k")[1]["held"] is True
    assert site.ask("POST", "locks/force-release", aim, key=site.ada)[0] == 403
    assert site.ask("POST", "locks/force-release", aim)[1]["released"] is True
    (line, *_) = site.ask("GET", "audit")[1]["lines"]
    assert (line["actor"], line["action"], line["target"]) == ("member:olga", "force-release", "k")
    assert line["detail"] == f"fencing token {held['fencingToken']}: stuck\\nsince May"
