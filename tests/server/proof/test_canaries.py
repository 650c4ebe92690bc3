"""Secrets that are looked for in everything that a service has written, said and kept: they are nowhere (SEC3)."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
import redis
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from tests.server.proof.credentials import Credentials
from tests.server.talking import JSON, Answer, ask, until
from tests.servers import valkey
from tests.servers.process import Server

PASSWORD = "canary-of-the-store-6f1d"
METRICS = "canary-of-the-metrics-77ab"
TOKEN = "canary-of-a-lease-0d52c6d1"
WRONG = "canary-of-a-wrong-key-4be1"

# Everything is logged, also what the event loop has to say of its tasks.
_SERVE = """
import logging, sys
plain = logging.basicConfig
logging.basicConfig = lambda **given: plain(**{**given, "level": logging.DEBUG})
from leased.cli import main
sys.exit(main())
"""


@contextmanager
def serving(store: Server, credentials: Credentials, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A service whose secrets come in its environment, and whose words go to the file `log`."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = int(free.getsockname()[1])
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PYTHONASYNCIODEBUG": "1",
        "LEASED_URL": store.url,
        "LEASED_SERVE_REGISTRY": str(credentials.registry),
        "LEASED_SERVE_PORT": str(port),
        "LEASED_SERVE_LOG_REQUESTS": "yes",
        "LEASED_SERVE_METRICS_TOKEN": METRICS,
        "LEASED_SERVE_MAX_WAIT_SLICE": "0.3",
        "LEASED_SERVE_TIMEOUT": "1",
        "LEASED_SERVE_JWT_ISSUER": "https://id.example",
        "LEASED_SERVE_JWT_AUDIENCE": "leased",
        "LEASED_SERVE_JWT_PROJECT": "proof",
        "LEASED_SERVE_JWT_KEYS": str(folder / "keys.json"),
    }
    command = [sys.executable, "-c", _SERVE, "serve"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
    try:
        until(lambda: process.poll() is None and _answers(port), what="the service")
        yield process, port
    finally:
        process.terminate()
        process.wait(30)


def _answers(port: int) -> bool:
    try:
        return ask(port, "/healthz").status == 200
    except OSError:
        return False


class Talk:
    """Requests whose answers are kept, all but those in which a secret is told to whom it belongs."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.said: list[bytes] = []

    def ask(
        self, path: str, body: Any = None, *, bearer: str, tells: bool = False, method: str | None = None
    ) -> Answer:
        """Ask with a credential; what `tells` a secret is not kept."""
        headers = {**JSON, "Authorization": f"Bearer {bearer}"}
        answer = ask(self.port, path, body, headers=headers, method=method)
        if not tells:
            self.said.append(repr(answer.headers).encode() + answer.body)
        return answer


def token_of_a_user(folder: Path) -> str:
    """A JWT that the service believes; the public key goes to the file where it looks for it."""
    private = ec.generate_private_key(ec.SECP256R1())
    public = {**ECAlgorithm.to_jwk(private.public_key(), as_dict=True), "kid": "one", "use": "sig", "alg": "ES256"}
    (folder / "keys.json").write_text(json.dumps({"keys": [public]}))
    claims = {"iss": "https://id.example", "aud": "leased", "sub": "jo", "exp": int(time.time()) + 600}
    return jwt.encode(claims, private, "ES256", headers={"kid": "one"})


def test_no_secret_is_written_said_or_kept(private_valkey: Callable[..., Server], tmp_path: Path) -> None:
    """SEC2, SEC3, C176: keys, tokens of leases, JWTs, the passwords of the store and of the metrics: not in logs at
    debug level, answers, metrics, events, the audit log, arguments of processes, the registry or the lock store."""
    store, credentials, user = private_valkey(password=PASSWORD), Credentials(tmp_path), token_of_a_user(tmp_path)
    owner, member = credentials.key("owner"), credentials.key("member")
    with serving(store, credentials, tmp_path) as (process, port):
        talk = Talk(port)
        events = listen_to_events(port, owner)
        minted, made = use_everything(talk, owner=owner, member=member, user=user)
        talk.said.append(heard(events))
        assert b"force_released" in talk.said[-1]
        arguments = arguments_of_processes()
        kept = dump_of(store)
        assert b"held" in kept
        assert b"leased" in arguments
        break_the_store(talk, store, owner=owner)
        assert process.poll() is None
    files = b"".join(one.read_bytes() for one in sorted(tmp_path.glob("registry.db*")) if one.suffix != ".key")
    log = (tmp_path / "log").read_bytes()
    pepper = tmp_path.joinpath("registry.db.key").read_bytes()
    secrets = {
        "the owner's key": owner.rpartition("_")[2],
        "the member's key": member.rpartition("_")[2],
        "a key made over HTTP": made.rpartition("_")[2],
        "a wrong key": WRONG,
        "a token of a lease": TOKEN,
        "a token that the service made": minted,
        "a JWT": user.rpartition(".")[2],
        "the store's password": PASSWORD,
        "the metrics' password": METRICS,
        "the key of the hash": pepper.hex(),
    }
    places = {
        "the log": log,
        "an answer": b"\n".join(talk.said),
        "the arguments of a process": arguments,
        "the registry": files,
        "the lock store": kept,
    }
    assert log.count(b"\n") > 30, "nothing much was logged"
    assert b'"path"' in log
    assert b"member" in files
    found = [
        (name, place)
        for name, secret in secrets.items()
        for place, content in places.items()
        if secret.encode() in content
    ]
    assert not found
    assert pepper not in files + kept + log


def use_everything(talk: Talk, *, owner: str, member: str, user: str) -> tuple[str, str]:
    """Every operation, good and refused; a token and a key that the service made."""
    lease = {"key": "k", "token": TOKEN}
    taken = talk.ask("/v1/locks/acquire", {**lease, "ttlMs": 60_000, "owner": "o"}, bearer=member, tells=True)
    assert taken.json["acquired"] is True
    assert talk.ask("/v1/locks/acquire", {"key": "k", "ttlMs": 60_000}, bearer=user).json["acquired"] is False
    assert talk.ask("/v1/locks/acquire", {"key": "k", "ttlMs": 60_000, "waitMs": 600}, bearer=user).status == 200
    for name, more in (("renew", {"ttlMs": 60_000}), ("look", {})):
        talk.ask(f"/v1/locks/{name}", {**lease, **more}, bearer=member)
    minted = talk.ask("/v1/locks/acquire", {"key": "held", "ttlMs": 60_000}, bearer=user, tells=True).json["token"]
    talk.ask("/v1/locks/batch", {"operations": [{"operation": "look", **lease}]}, bearer=member)
    for path in (
        "/v1/locks/status?key=k",
        "/v1/locks",
        "/v1/capabilities",
        "/v1/credentials",
        "/openapi.json",
        "/readyz",
    ):
        talk.ask(path, bearer=owner)
    talk.ask("/v1/locks", bearer=member)  # refused
    assert talk.ask("/metrics", bearer=METRICS).status == 200
    assert talk.ask("/metrics", bearer=owner).status in (401, 403)
    made = talk.ask("/v1/credentials", {"kind": "member", "name": "new"}, bearer=owner, tells=True).json["key"]
    rules = {
        "ruleSet": {"name": "r", "resourceType": "lock"},
        "rules": {"lock": {"acquire": "false"}},
    }
    assert talk.ask("/v1/rule-set", rules, bearer=owner, method="PUT").status == 200
    assert talk.ask("/v1/locks/renew", {**lease, "ttlMs": 60_000}, bearer=member).status == 403
    refused(talk, owner=owner, member=member, user=user)
    talk.ask("/v1/locks/force-release", {"key": "k", "reason": "proof"}, bearer=owner)
    talk.ask("/v1/locks/release", lease, bearer=member)
    talk.ask("/v1/locks/abandon", lease, bearer=member)
    talk.ask("/v1/audit", bearer=owner)
    return minted, made


def refused(talk: Talk, *, owner: str, member: str, user: str) -> None:
    """Requests with a mistake beside a secret, and credentials with a mistake in them."""
    for wrong in (WRONG, f"lk_{WRONG}", f"{owner}x", member[:-1], f"{user}x", f"a.b.{WRONG}"):
        assert talk.ask("/v1/capabilities", bearer=wrong).status == 401
    for body in (
        {"key": "k", "token": TOKEN, "ttlMs": "soon"},
        {"key": "k\x00", "token": TOKEN, "ttlMs": 1},
        {"key": "k", "token": TOKEN, "ttlMs": 1},
        {"key": "k", "token": [TOKEN], "ttlMs": 60_000},
        {"key": "k", "token": TOKEN * 20, "ttlMs": 60_000},
        {"key": "k", "token": TOKEN, "ttlMs": 60_000, "unknown": TOKEN},
        b'{"key":"k","token":"%s","ttlMs":60000' % TOKEN.encode(),
        b'{"token":"%s","token":"%s"}' % (TOKEN.encode(), TOKEN.encode()),
    ):
        assert talk.ask("/v1/locks/acquire", body, bearer=owner).status == 400
    assert talk.ask(f"/v1/locks/status?key=k&token={TOKEN}", bearer=owner).status == 400
    assert talk.ask(f"/v1/locks/status?key=k&{TOKEN}=", bearer=owner, tells=True).status == 400  # to whom wrote it


def break_the_store(talk: Talk, store: Server, *, owner: str) -> None:
    """Ask while the store is away, and while it is another one, which does not take the password."""
    store.kill()
    assert talk.ask("/v1/locks/acquire", {"key": "away", "token": TOKEN, "ttlMs": 60_000}, bearer=owner).status == 503
    talk.ask("/readyz", bearer=owner)
    store.start()
    with closing(valkey.client_of(store.place, password=PASSWORD)) as client:
        client.config_set("requirepass", "another")
    answer = talk.ask("/v1/locks/acquire", {"key": "other", "token": TOKEN, "ttlMs": 60_000}, bearer=owner, tells=True)
    talk.said.append(answer.body.replace(TOKEN.encode(), b"") if answer.status == 200 else answer.body)


def arguments_of_processes() -> bytes:
    """The command lines of all processes of this machine that can be read."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(process.read_bytes())
        except OSError:
            continue
    return b"\n".join(line for line in found if b"valkey-server" not in line)  # the store itself gets its own so


def dump_of(store: Server) -> bytes:
    """All that the lock store has, as it has it."""
    with closing(redis.Redis(store.host, store.port, password=PASSWORD)) as client:
        readers: dict[Any, Callable[[Any], Any]] = {
            b"string": client.get,
            b"hash": client.hgetall,
            b"zset": lambda name: client.zrange(name, 0, -1, withscores=True),
            b"set": client.smembers,
            b"list": lambda name: client.lrange(name, 0, -1),
        }
        found: list[Any] = [(name, readers[client.type(name)](name)) for name in client.scan_iter()]
    return repr(found).encode() if found else b""


def listen_to_events(port: int, bearer: str) -> socket.socket:
    """A stream of events that has begun."""
    stream = socket.create_connection(("127.0.0.1", port), timeout=20.0)
    head = f"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {bearer}\r\n\r\n"
    stream.sendall(head.encode())
    assert b" 200 " in stream.recv(65_536, socket.MSG_PEEK)
    return stream


def heard(stream: socket.socket) -> bytes:
    """All that has come over it by now."""
    said = b""
    with closing(stream):
        for _ in range(100):
            if b"force_released" in said:
                break
            said += stream.recv(65_536)
    return said


@pytest.fixture(autouse=True)
def _linux() -> None:
    if not Path("/proc/self/cmdline").exists():
        pytest.skip("what processes are called with is read from /proc")  # never in CI, which is Linux
