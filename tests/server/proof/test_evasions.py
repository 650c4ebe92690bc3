"""What callers try in order to get past a limit, or to be taken for somebody else: none of it works."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest

from leased.server.gate import Budgets
from leased.server.keys import ApiKey
from leased.server.limits import Budget
from tests.server.access.gates import World
from tests.server.running import Running, running
from tests.server.talking import JSON, PATIENCE, Answer, ask

ACQUIRE = "/v1/locks/acquire"
ATTEMPTS = 3
PLENTY = Budget(10**6, 1.0)


class Site:
    """A service on which ada has used all her attempts."""

    def __init__(self, world: World, service: Running) -> None:
        self.world = world
        self.port = service.port
        self.ada = world.key("member", "ada")
        for number in range(ATTEMPTS):
            assert self.ask({"key": f"k{number}"}).status == 200
        assert self.ask({"key": "more"}).status == 429

    def ask(
        self,
        body: Mapping[str, Any] | None = None,
        *,
        path: str = ACQUIRE,
        method: str | None = None,
        key: ApiKey | None = None,
        authorization: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Ask, as ada if not told otherwise, for a key in 30 s leases."""
        sent = {**JSON, "Authorization": authorization or f"Bearer {(key or self.ada).text}", **(headers or {})}
        return ask(self.port, path, {"key": "more", "ttlMs": 30_000, **(body or {})}, method=method, headers=sent)

    def raw(self, head: str, *, version: str = "1.1") -> int:
        """The status of an acquire whose request line or headers no client would send; 0 if the line was cut."""
        body = json.dumps({"key": "more", "ttlMs": 30_000})
        lines = [head.format(path=ACQUIRE, version=version), f"Authorization: Bearer {self.ada.text}"]
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}", "Connection: close"]
        with closing(socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)) as talking:
            talking.sendall("\r\n".join([*lines, "", body]).encode())
            said = b""
            while part := talking.recv(65_536):
                said += part
        return int(said.split(b" ")[1]) if said else 0


@pytest.fixture
def site() -> Iterator[Site]:
    world = World(budgets=Budgets(attempts=Budget(ATTEMPTS, 3600.0), requests=PLENTY, failures=Budget(ATTEMPTS, 60.0)))
    with running(gate=world.gate, registry="in memory", max_wait_slice=0.1) as service:
        yield Site(world, service)


def _with(**headers: str) -> Callable[[Site], int]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda site: site.ask(headers=named).status


def _at(path: str) -> Callable[[Site], int]:
    return lambda site: site.ask(path=path).status


def _many_connections(site: Site) -> int:
    return min(site.ask({"key": f"more{number}"}).status for number in range(20))


def _in_a_batch(site: Site) -> int:
    member = {"operation": "acquire", "key": "more", "ttlMs": 30_000}
    headers = {**JSON, "Authorization": f"Bearer {site.ada.text}"}
    answer = ask(site.port, "/v1/locks/batch", {"operations": [member] * 20}, headers=headers)
    return min(int(outcome["status"]) for outcome in answer.json["outcomes"])


def _just_before_the_clock(site: Site) -> int:
    """The answer says when it works again; a moment before it does not."""
    site.world.watch.time += float(site.ask().json["retryAfter"]) - 1.001
    return site.ask().status


EVASIONS: dict[str, Callable[[Site], int]] = {
    "X-Forwarded-For": _with(X_Forwarded_For="203.0.113.9"),
    "a long X-Forwarded-For": _with(X_Forwarded_For=", ".join(f"203.0.113.{n}" for n in range(200))),
    "Forwarded": _with(Forwarded="for=203.0.113.9;host=elsewhere;proto=https"),
    "X-Real-IP": _with(X_Real_IP="203.0.113.9"),
    "True-Client-IP": _with(True_Client_IP="203.0.113.9", CF_Connecting_IP="203.0.113.9"),
    "X-Forwarded-Host": _with(X_Forwarded_Host="internal"),
    "another Host": _with(Host="internal.example"),
    "a user in a header": _with(X_User="root", X_Remote_User="root", Remote_User="root", X_Forwarded_User="root"),
    "a project in a header": _with(X_Project="other", X_Tenant="other"),
    "a cookie": _with(Cookie="session=admin; user=root"),
    "a method override": _with(X_HTTP_Method_Override="PUT", X_Method_Override="PUT"),
    "a path override": _with(X_Original_URL="/v1/locks/release", X_Rewrite_URL="/v1/locks/release"),
    "many connections": _many_connections,
    "many keys of hers": lambda site: site.ask(key=site.world.key("member", "ada")).status,
    "the scheme in capitals": lambda site: site.ask(authorization=f"BEARER {site.ada.text}").status,
    "spaces in the credential": lambda site: site.ask(authorization=f"Bearer   {site.ada.text}").status,
    "capitals in the path": _at("/v1/locks/Acquire"),
    "an encoded path": _at("/v1/locks/%61cquire"),
    "a path encoded twice": _at("/v1/locks/%2561cquire"),
    "an encoded slash": _at("/v1%2flocks/acquire"),
    "a slash too many": _at("/v1/locks/acquire/"),
    "two slashes": _at("/v1//locks/acquire"),
    "dots": _at("/v1/locks/x/../acquire"),
    "a semicolon": _at("/v1/locks/acquire;v=2"),
    "a question": _at("/v1/locks/acquire?user=root"),
    "a whole URL": lambda site: site.raw("POST http://localhost{path} HTTP/{version}\r\nHost: localhost"),
    "HTTP/1.0": lambda site: site.raw("POST {path} HTTP/{version}\r\nHost: localhost", version="1.0"),
    "no Host": lambda site: site.raw("POST {path} HTTP/{version}"),
    "two Hosts": lambda site: site.raw("POST {path} HTTP/{version}\r\nHost: localhost\r\nHost: elsewhere"),
    "another method": lambda site: site.ask(method="PUT").status,
    "a batch": _in_a_batch,
    "a wait": lambda site: site.ask({"waitMs": 60_000}).status,
    "another owner": lambda site: site.ask({"owner": "somebody"}).status,
    "another token": lambda site: site.ask({"token": "t" * 32}).status,
    "another name of the client": lambda site: site.ask({"client": "root@host:1"}).status,
    "a request id": lambda site: site.ask({"requestId": "one"}).status,
    "a moment too early": _just_before_the_clock,
}


@pytest.mark.parametrize("name", EVASIONS)
def test_no_evasion_gets_past_a_limit(site: Site, name: str) -> None:
    """SEC5: whoever has used his attempts is refused, whatever he writes; nothing is taken, and others are let in."""
    status = EVASIONS[name](site)
    assert 400 <= status < 500, status
    answer = site.ask(path="/v1/locks/status?key=more", method="GET")
    assert answer.json["state"] == "free"
    assert site.ask(key=site.world.key("member", "bob")).status == 200


def test_an_attempt_comes_back_just_when_it_was_said(site: Site) -> None:
    """R2: `retryAfter` is exact: after it, and not before, one attempt passes."""
    told = site.ask()
    assert told.headers["retry-after"] == str(told.json["retryAfter"])
    site.world.watch.time += float(told.json["retryAfter"])
    assert site.ask().status == 200
    assert site.ask({"key": "again"}).status == 429


IDENTITIES: dict[str, dict[str, str]] = {
    "users": {"X-User": "root", "Remote-User": "root", "X-Forwarded-User": "root", "X-User-Id": "root"},
    "roles": {"X-Role": "owner", "X-Groups": "admins", "X-Scopes": "full"},
    "projects": {"X-Project": "other", "X-Tenant-Id": "other"},
    "addresses": {"X-Forwarded-For": "127.0.0.1", "X-Real-IP": "127.0.0.1", "Forwarded": "for=127.0.0.1"},
    "certificates": {"X-Client-Cert": "CN=root", "X-SSL-Client-Verify": "SUCCESS", "X-SSL-Client-S-DN": "CN=root"},
    "other credentials": {"X-Api-Key": "lk_000000000000_" + "0" * 40, "Proxy-Authorization": "Bearer x", "Cookie": "a"},
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_no_header_makes_one_somebody_else(site: Site, name: str) -> None:
    """SEC5, V5: who holds a key is who showed the credential, with his own rights, in his own project."""
    bob, other = site.world.key("member", "bob"), site.world.key("member", "bob", project="other")
    forged = IDENTITIES[name]
    assert site.ask({"client": "root@host:1"}, key=bob, headers=forged).json["acquired"] is True
    assert site.ask({}, key=site.world.key("member", "cy")).json["holder"]["heldBy"] == "member:bob"
    assert site.ask({}, key=other, headers=forged).json["acquired"] is True  # a key of the other project
    refused = ask(site.port, "/v1/locks", headers={**forged, "Authorization": f"Bearer {bob.text}"})
    assert (refused.status, refused.json["code"]) == (403, "LOCK_ACCESS_DENIED")
    assert ask(site.port, "/v1/locks", headers=forged).status in (401, 429)


@pytest.mark.parametrize("hops", [0, 1])
def test_a_forged_address_gets_no_more_failures(hops: int) -> None:
    """SEC5: failed logins count for the address of the socket, or the one that the trusted proxy wrote last."""
    world = World(budgets=Budgets(attempts=PLENTY, requests=PLENTY, failures=Budget(ATTEMPTS, 60.0)))
    with running(gate=world.gate, registry="in memory", proxy_hops=hops) as service:

        def fail(number: int, *, last: str = "198.51.100.7") -> int:
            forged = f"203.0.113.{number}" if not hops else f"203.0.113.{number}, {last}"
            headers = {"X-Forwarded-For": forged, "Authorization": f"Bearer lk_{number:012x}_{'0' * 40}"}
            return ask(service.port, "/v1/locks/status?key=k", headers=headers).status

        assert [fail(number) for number in range(ATTEMPTS + 2)] == [401] * ATTEMPTS + [429] * 2
        key = world.key("member", "ada")  # who has a valid one is let in all the same
        headers = {"Authorization": f"Bearer {key.text}", "X-Forwarded-For": "198.51.100.7"}
        assert ask(service.port, "/v1/locks/status?key=k", headers=headers).status == 200
        if hops:
            assert fail(1, last="198.51.100.8") == 401  # another address
