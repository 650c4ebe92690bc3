"""Two services over one registry on a server: what replicas share, and what they do while it does not answer."""

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from leased.server.access import open_gate
from leased.server.credentials import RuleSet, Wanted
from leased.server.gate_memory import REMEMBERED_FOR
from leased.server.keys import ApiKey
from leased.server.management import Management
from leased.server.principals import Principal
from leased.server.registries import Place, open_registry
from leased.server.routes_manage import manage_routes
from leased.server.settings import Settings
from tests.server.access.registries import emptied
from tests.server.running import Running, running
from tests.server.talking import JSON, Answer, ask, until
from tests.servers import valkey
from tests.servers.process import Server
from tests.servers.proxy import Proxy

OPERATOR = Principal("default", "local", "operator")
NONE_LEFT = 429


class Replicas:
    """Two services over one registry, and the command line beside them. `via`: the way that the services take to it."""

    def __init__(self, url: str, directory: Path, *, via: str | None = None, **settings: Any) -> None:
        self.url = url
        self.directory = directory
        self.place = Place(url, str(directory / "registry.key"))
        self.settings = {"registry": via or url, "registry_key": self.place.key, "registry_timeout": 1.0, **settings}
        self._stack = ExitStack()
        self.owner = self.key("member", "olga", role="owner")
        self.ada = self.key("member", "ada")
        self.one, self.other = self.replica(), self.replica()

    def replica(self, **more: Any) -> Running:
        """One more service."""
        settings = {**self.settings, **more}
        gate = open_gate(Settings(**settings))
        return self._stack.enter_context(running(gate=gate, further=manage_routes(gate), **settings))

    def manage(self, work: Callable[[Management], Any]) -> Any:
        """What an administrator does by the command line."""

        async def run() -> Any:
            opened = open_registry(self.place, begin=True)
            try:
                return await work(Management(opened.registry, opened.hasher, time.time))
            finally:
                await opened.registry.close()

        return asyncio.run(run())

    def key(self, kind: str, name: str, **more: Any) -> ApiKey:
        """A new key."""
        wanted = Wanted("default", kind, name, **more)
        key: ApiKey = self.manage(lambda management: management.create(OPERATOR, wanted))[0]
        return key

    def close(self) -> None:
        """End the services."""
        self._stack.close()


def said(at: Running, path: str, body: Any = None, *, key: ApiKey, method: str | None = None) -> Answer:
    """What a service answers to the owner of a key."""
    headers = {"Authorization": f"Bearer {key.text}", **JSON}
    return ask(at.port, f"/v1/{path}", body, headers=headers, method=method)


def acquire(at: Running, name: str, *, key: ApiKey, **more: Any) -> Answer:
    """Ask for a lock."""
    return said(at, "locks/acquire", {"key": name, "ttlMs": 30_000, **more}, key=key)


Make = Callable[..., Replicas]


@pytest.fixture(params=["postgres", "valkey"])
def server(request: pytest.FixtureRequest) -> Server:
    """A server that can keep a registry, used by others, too."""
    found: Server = request.getfixturevalue(f"{request.param}_server")
    return found


@pytest.fixture
def make(tmp_path: Path, closing: ExitStack) -> Make:
    """Makes replicas over a registry of the test's own on a server, perhaps through a proxy."""

    def make(server: Server, *, proxy: Proxy | None = None, **settings: Any) -> Replicas:
        url = emptied(server, "postgres" if server.url.startswith("postgresql") else "valkey")
        via = None if proxy is None else url.replace(f":{server.port}/", f":{proxy.port}/")
        found = Replicas(url, tmp_path, via=via, **settings)
        closing.callback(found.close)
        return found

    return make


def test_a_key_revoked_at_one_is_refused_at_the_other(make: Make, server: Server) -> None:
    """V5: where it was revoked at once, elsewhere as soon as what is remembered there is two seconds old."""
    replicas = make(server)
    assert acquire(replicas.one, "a", key=replicas.ada).status == 200
    assert acquire(replicas.other, "b", key=replicas.ada).status == 200
    began = time.monotonic()
    revoked = said(replicas.one, "credentials/revoke", {"id": replicas.ada.id}, key=replicas.owner)
    assert (revoked.status, revoked.json["credential"]["state"]) == (200, "revoked")
    assert acquire(replicas.one, "c", key=replicas.ada).status == 401
    until(lambda: acquire(replicas.other, "c", key=replicas.ada).status == 401, what="the refusal")
    assert time.monotonic() - began < REMEMBERED_FOR + 3.0
    made = said(replicas.other, "credentials", {"kind": "member", "name": "bob"}, key=replicas.owner).json["key"]
    assert said(replicas.one, "capabilities", key=ApiKey("", made)).status == 401  # not the text of a key
    headers = {"Authorization": f"Bearer {made}", **JSON}
    assert ask(replicas.one.port, "/v1/capabilities", headers=headers).status == 200


def test_a_rule_set_and_the_audit_log_are_those_of_all(make: Make, server: Server) -> None:
    """A1, A5: rules installed at one count at the other, and each shows the whole log."""
    replicas = make(server)
    assert acquire(replicas.other, "a", key=replicas.ada).status == 200
    document = {"ruleSet": {"name": "none", "resourceType": "lock"}, "rules": {"lock": {"acquire": "false"}}}
    assert said(replicas.one, "rule-set", document, key=replicas.owner, method="PUT").status == 200
    until(lambda: acquire(replicas.other, "b", key=replicas.ada).status == 403, what="the refusal")
    until(lambda: "denied acquire" in str(said(replicas.one, "audit", key=replicas.owner).json), what="the line")
    pages = [said(at, "audit", key=replicas.owner).json["lines"] for at in (replicas.one, replicas.other)]
    assert [line["action"] for line in pages[1]][-3:] == ["install rule set", "create credential", "create credential"]
    assert pages[0] == pages[1][-len(pages[0]) :]


def test_the_budget_of_a_project_is_one(make: Make, server: Server) -> None:
    """R1, SEC5: going from replica to replica gives nothing; giving back is never refused."""
    replicas = make(server, project_requests=30)
    began = time.monotonic()
    held = acquire(replicas.one, "mine", key=replicas.ada).json
    passed = 1
    for _ in range(30):
        for at in (replicas.one, replicas.other):
            passed += said(at, "locks/status?key=a", key=replicas.ada).status == 200
    assert 25 < passed <= 30 + (time.monotonic() - began) / 2.0
    refused = said(replicas.other, "locks/status?key=a", key=replicas.owner)
    assert (refused.status, refused.json["code"]) == (NONE_LEFT, "lock_rate_limited")
    assert 0 <= refused.json["retryAfter"] <= 3
    released = said(replicas.one, "locks/release", {"key": "mine", "token": held["token"]}, key=replicas.owner)
    assert (released.status, released.json["released"]) == (200, True)


def test_the_attempts_of_a_member_are_counted_by_all(make: Make, server: Server) -> None:
    """R1: attempts to acquire count for the member at every replica, and nothing else does."""
    replicas = make(server, member_attempts=5)
    answers = [acquire(at, "k", key=replicas.ada).status for at in (replicas.one, replicas.other) * 5]
    assert answers == [200] * 5 + [NONE_LEFT] * 5
    assert acquire(replicas.other, "k", key=replicas.owner).status == 200
    assert said(replicas.other, "locks/status?key=k", key=replicas.ada).status == 200


def test_a_request_id_belongs_to_one_request_at_all(make: Make, server: Server) -> None:
    """O6, C168: an id used at one replica is known at the other: the same request passes, another is a conflict."""
    replicas = make(server)
    assert acquire(replicas.one, "k", key=replicas.ada, requestId="id").status == 200
    assert acquire(replicas.other, "k", key=replicas.ada, requestId="id").status == 200
    for conflict in (
        acquire(replicas.other, "other", key=replicas.ada, requestId="id"),
        acquire(replicas.other, "k", key=replicas.owner, requestId="id"),
    ):
        assert (conflict.status, conflict.json["code"]) == (409, "LOCK_REQUEST_CONFLICT")


def test_capabilities_say_what_replicas_share(make: Make, postgres_server: Server) -> None:
    """V1: whoever asks is told whether budgets and request ids are those of all replicas."""
    replicas = make(postgres_server)
    common = {"credentials": "all replicas", "budgets": "all replicas", "requestIds": "all replicas"}
    assert said(replicas.one, "capabilities", key=replicas.ada).json["sharing"] == common


@pytest.mark.parametrize("fault", ["black hole", "refused"])
def test_while_the_registry_is_silent_the_known_go_on(
    make: Make, server: Server, proxy_to: Callable[[Server], Proxy], fault: str
) -> None:
    """S2, LIVE9: holders renew and release; nobody takes a new lock, and nobody unknown is let in. Then it heals."""
    proxy = proxy_to(server)
    replicas = make(server, proxy=proxy)
    held = acquire(replicas.one, "k", key=replicas.ada).json
    renewal = {"key": "k", "token": held["token"], "ttlMs": 30_000}
    if fault == "refused":
        proxy.refuse()
        proxy.cut("reset")
    else:
        proxy.black_hole("both")
    unknown = replicas.key("member", "bob")
    for _ in range(2):
        answer = acquire(replicas.one, "new", key=replicas.ada)
        assert (answer.status, answer.json["code"], answer.json["applied"]) == (503, "LOCK_STORE_UNAVAILABLE", False)
        assert said(replicas.one, "locks/renew", renewal, key=replicas.ada).json["renewed"]
        assert acquire(replicas.one, "new", key=unknown).status == 503
    time.sleep(REMEMBERED_FOR)  # what is remembered is too old to be used without asking
    assert said(replicas.one, "locks/renew", renewal, key=replicas.ada).json["renewed"]
    assert said(replicas.one, "locks/release", {"key": "k", "token": held["token"]}, key=replicas.ada).json["released"]
    proxy.heal()
    until(lambda: acquire(replicas.one, "new", key=replicas.ada).status == 200, what="the recovery")
    assert acquire(replicas.one, "more", key=unknown).status == 200


def test_the_known_are_refused_when_the_silence_lasts(
    make: Make, valkey_server: Server, proxy_to: Callable[[Server], Proxy]
) -> None:
    """V5: a credential is not believed for ever: after `registry_grace` it is refused like an unknown one."""
    proxy = proxy_to(valkey_server)
    replicas = make(valkey_server, proxy=proxy, registry_grace=REMEMBERED_FOR + 0.5)
    held = acquire(replicas.one, "k", key=replicas.ada).json
    proxy.refuse()
    proxy.cut("reset")
    renewal = {"key": "k", "token": held["token"], "ttlMs": 30_000}
    began = time.monotonic()
    until(lambda: said(replicas.one, "locks/renew", renewal, key=replicas.ada).status == 503, what="the refusal")
    assert time.monotonic() - began > REMEMBERED_FOR - 1.0


@pytest.mark.parametrize("kind", ["postgres", "valkey"])
def test_a_restart_of_the_registry_is_survived(
    make: Make, kind: str, private_postgres: Callable[..., Server], private_valkey: Callable[..., Server]
) -> None:
    """V5: services find their registry again by themselves, with all that was in it."""
    server = private_postgres() if kind == "postgres" else private_valkey(settings=valkey.append_only())
    replicas = make(server)
    assert acquire(replicas.one, "k", key=replicas.ada, requestId="id").status == 200
    server.kill()
    assert acquire(replicas.one, "new", key=replicas.ada).status == 503
    server.start()
    until(lambda: acquire(replicas.one, "new", key=replicas.ada).status == 200, what="the recovery")
    until(lambda: acquire(replicas.other, "x", key=replicas.ada, requestId="id").status == 409, what="the conflict")


def test_a_registry_that_was_lost_lets_nobody_in(
    make: Make, private_valkey: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    """S2: a server that comes back empty is no registry without rules, until somebody makes one; the log says so."""
    server = private_valkey()
    replicas = make(server)
    rules = RuleSet("default", "none", "false")
    replicas.manage(lambda management: management.install(OPERATOR, rules))
    until(lambda: acquire(replicas.one, "k", key=replicas.ada).status == 403, what="the rule")
    server.restart()
    until(lambda: acquire(replicas.one, "k", key=replicas.ada).status == 503, what="the refusal")
    time.sleep(REMEMBERED_FOR)
    answer = acquire(replicas.one, "k", key=replicas.ada)
    assert (answer.status, answer.json["code"]) == (503, "LOCK_STORE_NOT_USABLE")
    assert "there is no registry" in caplog.text


def test_another_key_file_is_noticed(
    make: Make, server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """SEC2: a replica that hashes otherwise would refuse every key; its log says why, and it makes none of its own."""
    replicas = make(server)
    (tmp_path / "wrong.key").write_bytes(b"w" * 32)
    (tmp_path / "wrong.key").chmod(0o600)
    wrong = replicas.replica(registry_key=str(tmp_path / "wrong.key"))
    answer = acquire(wrong, "k", key=replicas.ada)
    assert (answer.status, answer.json["code"]) == (503, "LOCK_STORE_NOT_USABLE")
    assert "another key file" in caplog.text
    assert replicas.ada.secret not in f"{answer.json} {caplog.text}"
