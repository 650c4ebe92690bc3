"""The whole: a service with credentials as a process, clients that show them, limits over HTTP, and secrets nowhere."""

import asyncio
import itertools
import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest

import leased
from leased import aio
from leased.errors import AccessDenied, LockNotAcquired, LockTimeout, RateLimited, Unauthenticated
from leased.server.credentials import RuleSet
from leased.server.gate import Budgets
from leased.server.key_sets import KeySet
from leased.server.keys import ApiKey
from leased.server.limits import Budget
from leased.server.routes_manage import manage_routes
from leased.server.tokens import Tokens
from tests.cli.driving import Cli
from tests.server.access.gates import PLENTY, World
from tests.server.access.test_limits import Watch
from tests.server.access.test_tokens import ISSUER, Source, private, public
from tests.server.running import Running, running
from tests.server.talking import JSON, Answer, ask
from tests.server.test_serve import port_of, ready, serving

TTL = {"ttlMs": 30_000}


@contextmanager
def guarded(world: World, **settings: Any) -> Iterator[Running]:
    """A service behind the gate of a world."""
    with running(gate=world.gate, further=manage_routes(world.gate), registry="in memory", **settings) as service:
        yield service


def with_key(service: Running, key: ApiKey) -> str:
    """The URL of the service with a credential in it."""
    return service.url.replace("://", f"://:{key.text}@")


def send(port: int, path: str, body: Any = None, *, key: str | None, **headers: str) -> Answer:
    """An answer to a request with a credential."""
    shown = {} if key is None else {"Authorization": f"Bearer {key}"}
    return ask(port, path, body, headers={**JSON, **shown, **headers})


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    """The command, in a directory of its own."""
    found = Cli(tmp_path)
    yield found
    found.close()


def _audited(port: int, owner: str, *, both: tuple[str, str]) -> bool:
    """Whether the log has lines of both; what was denied is gathered for a second."""
    give_up_at = time.monotonic() + 10.0
    while time.monotonic() < give_up_at:
        lines = send(port, "/v1/audit", key=owner).json["lines"]
        if {line["action"] for line in lines} >= set(both):
            return True
        time.sleep(0.1)  # each question is a line of the service's own log, which nobody reads meanwhile
    return False


def test_a_team_runs_a_service_in_ten_minutes(cli: Cli) -> None:
    """V5, V6: make keys, serve, run a job, see who holds it, end it by force, read the log; without a key, nothing."""
    registry = str(cli.path("registry.db"))
    made = ("keys", "create", "--registry", registry)
    owner = cli.data(*made, "--name", "olga", "--role", "owner")["key"]
    ada = cli.data(*made, "--name", "ada")["key"]
    with serving(cli.directory, "--registry", registry, "--store", cli.url, "--log-requests") as (process, url):
        ready(url)
        cli.environment |= {"LEASED_URL": url, "LEASED_API_KEY": ada}
        done = cli.run("run", "nightly", "--", "sh", "-c", "echo $LEASED_FENCING_TOKEN")
        assert (done.returncode, done.stdout.strip().isdecimal()) == (0, True)
        handle = cli.data("acquire", "nightly", "--ttl", "60s")["handle"]
        assert cli.data("status", "nightly")["heldBy"] == "member:ada"
        assert cli.run("list").returncode == 77
        cli.environment["LEASED_API_KEY"] = owner
        assert cli.data("list")["key"] == "nightly"
        assert cli.data("force-release", "nightly", "--yes")["forceReleased"] is True
        cli.environment["LEASED_HANDLE"] = handle
        assert cli.run("release", "nightly").returncode == 76
        assert _audited(port_of(url), owner, both=("force-release", "denied list"))
        cli.environment["LEASED_API_KEY"] = ada[:-1] + ("0" if ada[-1] != "0" else "1")
        assert cli.run("status", "nightly").returncode == 77
        del cli.environment["LEASED_API_KEY"]
        assert cli.run("status", "nightly").returncode == 77
        command = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        process.terminate()
        talk = process.communicate(timeout=30)[1]
        assert process.returncode == 0
    kept = b"".join(path.read_bytes() for path in cli.directory.glob("*.db*"))
    for secret in (owner.rpartition("_")[2], ada.rpartition("_")[2], json.loads(handle)["token"]):
        assert secret.encode() not in kept + command
        assert secret not in talk
    assert '"principal":"member:ada"' in talk


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "batch"])
@pytest.mark.parametrize("operation", ["acquire", "renew"])
def test_a_key_that_nobody_may_use_is_told_before_a_rule_is_asked(cli: Cli, operation: str, *, alone: bool) -> None:
    """SEC3: a sign that keys cannot have is no question of access: it is named, and no rule says no to it."""
    registry = str(cli.path("registry.db"))
    made = ("keys", "create", "--registry", registry)
    ada = cli.data(*made, "--kind", "member", "--name", "ada")["key"]
    rules = '[ruleSet]\nname = "none"\nresourceType = "lock"\n[rules.lock]\nacquire = "false"\nrenew = "false"\n'
    cli.path("rules.toml").write_text(rules)
    assert cli.run("config", "push", "rules.toml", "--registry", registry).returncode == 0
    more = {"token": "0" * 32, "renewal": 1} if operation == "renew" else {}
    with serving(cli.directory, "--registry", registry, "--store", "memory:") as (_, url):
        ready(url)
        for key, status, code in (("user/1", 400, "LOCK_KEY_INVALID"), ("user:1", 403, "LOCK_ACCESS_DENIED")):
            asked = {"key": key, "ttlMs": 30_000, **more}
            if alone:
                told = send(port_of(url), f"/v1/locks/{operation}", asked, key=ada).json
            else:
                batch = {"operations": [{"operation": operation, **asked}]}
                (told,) = send(port_of(url), "/v1/locks/batch", batch, key=ada).json["outcomes"]
            assert (told["status"], told["code"]) == (status, code)


def test_who_shows_no_valid_credential_is_nobody_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """C176: `local` is a principal of services without credentials; here a dash stands for who is not known."""
    caplog.set_level(logging.INFO, logger="leased.server")
    world = World()
    ada = world.key()
    with guarded(world, log_requests=True) as service:
        for key in (None, f"{ada.text}x", ada.text):
            send(service.port, "/v1/locks/status?key=k", key=key)
        send(service.port, "/healthz", key=ada.text)
        send(service.port, "/nowhere", key=None)
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "leased.server"]
    assert [(line["principal"], line["project"]) for line in lines] == [
        ("-", ""),
        ("-", ""),
        ("member:ada", "p"),
        ("-", ""),
        ("-", ""),
    ]


def test_only_administrators_are_told_where_locks_are_kept() -> None:
    """V1, 12: what the store gives is for everybody, its place is not."""
    world = World()
    with guarded(world) as service:
        for more in ({}, {"role": "admin"}, {"role": "owner"}):
            body = send(service.port, "/v1/capabilities", key=world.key(**more).text).json
            assert body["assurance"]["exclusive"]
            assert (body["store"] is not None) is bool(more), more
        for scopes, shown in (((), False), (("locks.manage",), False), (("full",), True)):
            key = world.key("service", "deploy", scopes=scopes)
            assert (send(service.port, "/v1/capabilities", key=key.text).json["store"] is not None) is shown
    with running() as open_service:
        assert ask(open_service.port, "/v1/capabilities").json["store"].startswith("memory:")


def test_an_owner_is_known_by_three_things() -> None:
    """O2: principal, kind and name must match to take a hold over; any mismatch is ordinary contention."""
    world = World()
    keys = {
        "ada": world.key("member", "ada"),
        "ada again": world.key("member", "ada"),
        "bob": world.key("member", "bob"),
        "function": world.key("function", "ada"),
        "elsewhere": world.key("member", "ada", project="q"),
    }
    with guarded(world) as service, leased.connect(with_key(service, keys["ada"])) as locks:
        held = locks.lock("k", owner="run").acquire()
        for who in ("bob", "function"):
            with leased.connect(with_key(service, keys[who])) as others, pytest.raises(LockNotAcquired) as caught:
                others.lock("k", owner="run").acquire()
            assert caught.value.holder is not None
            assert (caught.value.holder.owner, caught.value.holder.held_by) == ("run", "member:ada")
        with leased.connect(with_key(service, keys["elsewhere"])) as others:
            assert others.lock("k", owner="run").acquire().release()
        with leased.connect(with_key(service, keys["ada again"])) as again:
            taken = again.lock("k", owner="run").acquire()
            assert taken.fencing_token > held.fencing_token
            assert not held.release()
            assert taken.release()


def test_both_faces_meet_the_same_refusals() -> None:
    """11, A3: no credential, no right and no permission are errors of their own, with nothing secret in them."""
    world = World()
    key, closed = world.key(), world.key(project="closed")
    world.registry.rule_sets["closed"] = RuleSet("closed", "nobody")
    wrong = ApiKey(key.id, "0" * 40)
    cases = [(wrong, Unauthenticated), (closed, AccessDenied)]
    with guarded(world) as service:
        for shown, kind in cases:
            with leased.connect(with_key(service, shown)) as locks, pytest.raises(kind) as caught:
                locks.lock("k").acquire(wait=0)
            assert shown.secret not in f"{caught.value!r}{locks!r}"

            async def ask_for_it(url: str = with_key(service, shown), expected: type[Exception] = kind) -> None:
                async with aio.connect(url) as locks:
                    with pytest.raises(expected):
                        await locks.lock("k").acquire(wait=0)

            asyncio.run(ask_for_it())


def test_a_hold_whose_right_ended_is_lost_as_denied() -> None:
    """A4, H2: renewal is refused, the hold stays valid to its deadline, and release works."""
    world = World()
    with guarded(world, min_ttl=0.1) as service, leased.connect(with_key(service, world.key())) as locks:
        handle = locks.lock("k", ttl=30, renew=False).acquire()
        world.registry.rule_sets["p"] = RuleSet("p", "closing", "false")
        world.gate.forget("p")
        with pytest.raises(AccessDenied):
            handle.renew()
        handle.ensure_held()
        assert handle.release()
        with pytest.raises(AccessDenied), locks.lock("user:x", ttl=30):
            pytest.fail("the block began without a grant")


@pytest.mark.real_clock
def test_a_waiting_acquire_absorbs_a_limit_and_a_single_try_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """R2: 429 with `retryAfter` is waited for within `wait`; a single try raises `RateLimited`."""
    world = World(budgets=Budgets(attempts=Budget(2, 2.0)))
    key, refusals = world.key(), []
    admit = world.gate.admit

    async def counted(*asked: Any, **more: Any) -> None:
        try:
            await admit(*asked, **more)
        except RateLimited:
            refusals.append(asked)
            world.watch.time += 1.0 * (len(refusals) == 3)
            raise

    monkeypatch.setattr(world.gate, "admit", counted)
    with guarded(world) as service, leased.connect(with_key(service, key)) as locks:
        for number in range(2):
            assert locks.lock(f"k{number}").acquire(wait=0).release()
        with pytest.raises(RateLimited) as caught:
            locks.lock("k2").acquire(wait=0)
        assert caught.value.retry_after == 1.0
        answer = send(service.port, "/v1/locks/acquire", {"key": "k2", **TTL}, key=key.text)
        assert (answer.status, answer.json["code"]) == (429, "lock_rate_limited")
        assert answer.headers["retry-after"] == str(answer.json["retryAfter"]) == "1"
        assert locks.lock("k2").acquire(wait=60).release()
        assert len(refusals) == 3
        with pytest.raises(LockTimeout):
            locks.lock("k3").acquire(wait=0.2)


def test_nothing_that_a_caller_writes_moves_a_limit() -> None:
    """SEC5, C173: 25 ways to be somebody else, or nobody; each is refused like the plain request."""
    world = World(budgets=Budgets(attempts=Budget(1, 3600.0), requests=PLENTY.requests, failures=Budget(3, 3600.0)))
    ada, again = world.key("member", "ada"), world.key("member", "ada")
    headers = [
        {"X-Forwarded-For": "203.0.113.9"},
        {"X-Forwarded-For": "203.0.113.9, 198.51.100.1"},
        {"Forwarded": "for=203.0.113.9"},
        {"X-Real-IP": "203.0.113.9"},
        {"X-Client-IP": "203.0.113.9"},
        {"CF-Connecting-IP": "203.0.113.9"},
        {"True-Client-IP": "203.0.113.9"},
        {"X-HTTP-Method-Override": "GET"},
        {"X-Original-URL": "/healthz"},
        {"X-Rewrite-URL": "/v1/locks/release"},
        {"X-User": "bob"},
        {"X-Project": "q"},
        {"X-Request-Id": "other"},
        {"User-Agent": "another"},
        {"Cookie": "user=bob"},
        {"Connection": "close"},
    ]
    paths = ["locks/Acquire", "locks/%61cquire", "locks/acquire/", "/locks/acquire", "./locks/acquire"]
    body = {"key": "k", **TTL}
    with guarded(world) as service:
        assert send(service.port, "/v1/locks/acquire", body, key=ada.text).status == 200
        for more, key in itertools.product([{}, *headers], (ada, again)):
            assert send(service.port, "/v1/locks/acquire", body, key=key.text, **more).status == 429, more
        for path in paths:
            assert send(service.port, f"/v1/{path}", body, key=ada.text).status == 404, path
        for changed in ({"owner": "x"}, {"client": "x@y:1"}, {"requestId": "r"}, {"key": "l"}):
            assert send(service.port, "/v1/locks/acquire", body | changed, key=ada.text).status == 429
        batch = {"operations": [{"operation": "acquire", **body}]}
        (outcome,) = send(service.port, "/v1/locks/batch", batch, key=ada.text).json["outcomes"]
        assert outcome["code"] == "lock_rate_limited"
        codes = [send(service.port, "/v1/locks/status?key=k", key=None, **more).status for more in headers[:7]]
        assert codes == [401] * 3 + [429] * 4
        assert send(service.port, "/v1/locks/status?key=k", key=ada.text).status == 200


def test_secrets_are_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    """SEC3, C176, issue 4: keys, tokens of leases and of issuers are in no log at any level, error, list or metric."""
    caplog.set_level(logging.DEBUG)
    watch = Watch()
    tokens = Tokens(ISSUER, KeySet(Source(public("rsa")), now=watch), wall=watch)
    world = World(tokens=tokens, budgets=Budgets(PLENTY.attempts, PLENTY.requests, Budget(5, 60.0)))
    owner, ada = world.key("member", "olga", role="owner"), world.key("member", "ada")
    world.registry.rule_sets["p"] = RuleSet("p", "canary-rule", "record.key == 'canary-in-a-rule'")
    claims = {"iss": ISSUER.issuer, "aud": "leased", "exp": 9999, "sub": "tess"}
    good = jwt.encode(claims, private("rsa"), "RS256", headers={"kid": "rsa"})
    bad = jwt.encode(claims, private("ec"), "ES256", headers={"kid": "ec"})
    lease = "canary-token-of-a-lease-0123456789"
    shown: list[str] = []
    with guarded(world, log_requests=True, metrics_token="canary-of-metrics") as service:

        def say(path: str, body: Any = None, *, key: str | None = owner.text, **headers: str) -> None:
            answer = send(service.port, path, body, key=key, **headers)
            shown.append(f"{answer.headers} {answer.body.decode()}")

        asked = {"key": "k", "token": lease, **TTL}
        credentials = (owner.text, ada.text, good, bad, f"{ada.text}x", f"lk_{ada.id}_{'5' * 40}", "canary bearer")
        for key in credentials:
            for name, body in {
                "acquire": asked,
                "renew": asked,
                "look": {"key": "k", "token": lease},
                "release": {"key": "other", "token": lease},
                "force-release": {"key": "l"},
                "batch": {"operations": [{"operation": "look", "key": "k", "token": lease}]},
            }.items():
                say(f"/v1/locks/{name}", body, key=key)
            say("/v1/locks/acquire", {**asked, "key": "bad\n"}, key=key)
            say("/v1/locks/acquire", {**asked, "ttlMs": "x"}, key=key)
            say("/v1/locks/acquire", {**asked, "unknown": 1}, key=key)
        for path in ("locks?prefix=", "locks/status?key=k", "credentials", "audit", "capabilities"):
            say(f"/v1/{path}")
        say("/metrics", key="canary-of-metrics")
        say("/openapi.json")
        world.registry.broken = True
        world.gate.forget("p")
        say("/v1/locks/acquire", asked)
    inside = [repr(world.registry.kept), repr(world.registry.lines), repr(vars(world.gate))]
    everything = "\n".join([*shown, caplog.text, *inside])
    everything = everything.replace(f'"token":"{lease}"', "")  # an acquire answers with the token it was asked for
    for secret in (owner.secret, ada.secret, good, bad, good.rpartition(".")[2], lease, "5" * 40, "canary-of-metrics"):
        assert secret not in everything, secret
    assert "canary-in-a-rule" not in "\n".join(shown)
    assert len(shown) > 60
    assert "member:tess" in caplog.text
