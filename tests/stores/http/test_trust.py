"""Whom the store over HTTP trusts, what it shows to whom, and what it does with a service that gives too little."""

import logging
import socket
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

import leased
from leased.clocks import BlockingClock
from leased.errors import RateLimited, StoreNotUsable, StoreUnavailable, Unauthenticated
from leased.model import Acquire, Claim, Held, Operation, Release, Released
from leased.server.principals import LOCAL, Action, OpenGate, Principal, Shown
from leased.stores.memory import MemoryStore
from tests.server.running import running
from tests.servers import certificates
from tests.servers.process import Server
from tests.servers.proxy import Proxy
from tests.stores.http.conftest import TIMEOUT, TOKEN, Caller
from tests.stores.http.peers import ASSURANCE, Behaviour, Peer, answer

SECRET = "lk_1_CANARYc0ffee"
CLAIM = Claim("key", TOKEN, 30.0)


def files(server: Server) -> Mapping[str, Path]:
    """The certificates of a server, by what they are for in a URL."""
    place = server.place
    return {
        "ca": certificates.authority_file(place),
        "cert": certificates.certificate_file(place),
        "cert_key": certificates.key_file(place),
    }


def with_files(server: Server, *names: str, **others: Path) -> str:
    """The URL of the server with these files in it."""
    named = {**{name: files(server)[name] for name in names}, **others}
    return f"{server.url}?{'&'.join(f'leased_{name}={path}' for name, path in named.items())}"


@pytest.fixture
def tls_service(private_service: Callable[..., Server]) -> Server:
    """A service that speaks TLS, with a certificate that no system trusts."""
    return private_service(tls=True)


def test_a_service_is_trusted_by_the_authority_that_is_named(caller: Caller, tls_service: Server) -> None:
    """SEC18: with its own authority a private service is trusted, and everything works as without TLS."""
    store = caller.open(with_files(tls_service, "ca"))
    for number in range(1, 4):
        caller.take(store, f"key{number}")
        assert isinstance(caller(store.renew(f"key{number}", TOKEN, ttl=30.0, number=1, timeout=TIMEOUT)), Held)
        assert caller(store.release(f"key{number}", TOKEN, timeout=TIMEOUT))


def test_an_unknown_certificate_is_refused(caller: Caller, tls_service: Server) -> None:
    """SEC18: without that authority nothing is sent, and the hint says how to name it."""
    store = caller.open(tls_service.url)
    with pytest.raises(StoreNotUsable, match="leased_ca") as caught:
        caller(store.acquire(CLAIM, timeout=TIMEOUT))
    assert caught.value.applied is False


def test_a_certificate_for_another_host_is_refused(
    caller: Caller, tls_service: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC18: a trusted authority is not enough, the certificate has to be for this host."""
    found = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", tls_service.port))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [found])
    url = with_files(tls_service, "ca").replace("127.0.0.1", "other.example", 1)
    with pytest.raises(StoreNotUsable, match="not trusted"):
        caller(caller.open(url).acquire(CLAIM, timeout=TIMEOUT))


def test_a_client_is_known_by_its_certificate(caller: Caller, private_service: Callable[..., Server]) -> None:
    """mTLS: with certificate and key the service lets in; without them it does not, and nothing was granted."""
    server = private_service(tls=True, client_certificates=True)
    caller.take(caller.open(with_files(server, "ca", "cert", "cert_key")), "key")
    with pytest.raises(StoreUnavailable, match="TLS|closed|reset") as caught:
        caller(caller.open(with_files(server, "ca")).acquire(CLAIM, timeout=TIMEOUT))
    assert caught.value.applied is False


@pytest.mark.parametrize("name", ["ca", "cert"])
def test_a_file_that_cannot_be_used_is_named(caller: Caller, tls_service: Server, name: str, tmp_path: Path) -> None:
    """A file that is missing, or is no certificate, is told at the first use, with the parameter that names it."""
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("no certificate")
    for path in (tmp_path / "missing.pem", rubbish):
        store = caller.open(with_files(tls_service, **{name: path}))
        with pytest.raises(StoreNotUsable, match=f"leased_{name}={path}"):
            caller(store.status("key", timeout=TIMEOUT))


def test_an_encrypted_key_asks_nobody(caller: Caller, tls_service: Server, tmp_path: Path) -> None:
    """A key with a password is refused; nothing is asked on the terminal."""
    from cryptography.hazmat.primitives import serialization

    plain = serialization.load_pem_private_key(files(tls_service)["cert_key"].read_bytes(), None)
    locked = tmp_path / "locked.pem"
    form = serialization.PrivateFormat.PKCS8
    password = serialization.BestAvailableEncryption(b"pass")
    locked.write_bytes(plain.private_bytes(serialization.Encoding.PEM, form, password))
    store = caller.open(with_files(tls_service, "ca", "cert", cert_key=locked))
    with pytest.raises(StoreNotUsable, match="leased_cert="):
        caller(store.status("key", timeout=TIMEOUT))


def test_a_port_without_tls_is_told(caller: Caller, service_server: Server) -> None:
    """https:// to a port that speaks plain HTTP says so."""
    store = caller.open(service_server.url.replace("http:", "https:"))
    with pytest.raises((StoreNotUsable, StoreUnavailable), match="TLS"):
        caller(store.status("key", timeout=TIMEOUT))


def test_a_black_hole_ends_the_beginning_of_tls(
    caller: Caller, tls_service: Server, proxy_to: Callable[[Server], Proxy]
) -> None:
    """W2: a way that swallows all ends a call in its time, also in the middle of the handshake."""
    proxy = proxy_to(tls_service)
    proxy.black_hole()
    store = caller.open(f"{proxy.url}?leased_ca={files(tls_service)['ca']}")
    with pytest.raises(StoreUnavailable, match="cannot connect.*no answer") as caught:
        caller(store.status("key", timeout=0.3))
    assert caught.value.applied is False


class Door:
    """A gate that notes what it is shown, and lets in who shows the right thing."""

    def __init__(self) -> None:
        self._open = OpenGate()
        self.shown: list[Shown] = []
        self.limited = False

    async def identify(self, shown: Shown, *, peer: str) -> Principal:
        """See `Gate`."""
        self.shown.append(shown)
        if shown != f"Bearer {SECRET}":
            raise Unauthenticated("no credential that is known here")
        return LOCAL

    async def admit(self, principal: Principal, action: Action, *, key: str = "", count: int = 1) -> None:
        """See `Gate`."""
        if self.limited and action == "capabilities":
            raise RateLimited("too many questions", retry_after=9.0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._open, name)


def test_the_credential_is_shown_with_every_request(caller: Caller) -> None:
    """V5: from the URL it goes out as a bearer; without one the service's refusal comes up as what it is."""
    door = Door()
    with running(MemoryStore(BlockingClock()), gate=cast("Any", door)) as service:
        store = caller.open(service.url.replace("://", f"://:{SECRET}@"))
        caller.take(store, "key")
        assert caller(store.release("key", TOKEN, timeout=TIMEOUT))
        assert set(door.shown) == {f"Bearer {SECRET}"}
        with pytest.raises(Unauthenticated, match="LEASED_API_KEY"):
            caller(caller.open(service.url).acquire(CLAIM, timeout=TIMEOUT))
        assert door.shown[-1] is None


def test_no_output_shows_the_credential(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, peer: Callable[[Behaviour], Peer]
) -> None:
    """C176, SEC3: neither log nor error nor repr has the key, whatever goes wrong."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("LEASED_API_KEY", f"{SECRET}2")
    told: list[str] = []
    places = [
        peer(lambda first, connection: connection.sendall(answer(first.encode() + b" echo", 500))).url,
        peer(lambda _, connection: connection.sendall(b"rubbish\r\n\r\n")).url,
        peer(lambda _, connection: connection.close()).url,
        "https://localhost:1",
    ]
    for place in places:
        for url in (place, place.replace("://", f"://:{SECRET}@")):
            locks = leased.connect(url)
            with pytest.raises(StoreUnavailable) as caught:
                locks.lock("key").acquire()
            told += [repr(locks), str(locks), *traceback.format_exception(caught.value), repr(vars(caught.value))]
            locks.close()
    assert SECRET not in "".join([*told, caplog.text])


def giving(exclusive: str, **more: Any) -> Behaviour:
    """A service over a store of that exclusivity, which grants and releases everything."""
    grant = {"acquired": True, "key": "key", "token": TOKEN, "owner": None, "fencingToken": 7}
    grant |= {"ttlMs": 30000, "leftMs": 30000, "waitedMs": 0, "renewal": 0}

    def behave(first: str, connection: Any) -> None:
        if "capabilities" in first:
            connection.sendall(answer({"assurance": {**ASSURANCE, "exclusive": exclusive, **more}}))
        elif "batch" in first:
            connection.sendall(answer({"outcomes": [{"released": True}]}))
        else:
            connection.sendall(answer(grant if "acquire" in first else {"released": True}))

    return behave


def test_nothing_is_granted_by_less_than_is_required(caller: Caller, peer: Callable[[Behaviour], Peer]) -> None:
    """S10: a claim is not even sent; what was held before can still be released, also in a batch with claims."""
    weak = peer(giving("until-failover", notes=["it may fail over"]))
    store = caller.open(f"{weak.url}?leased_require=replicated")
    with pytest.raises(StoreNotUsable, match="it may fail over") as caught:
        caller(store.acquire(CLAIM, timeout=TIMEOUT))
    assert caught.value.applied is False
    assert not [line for line in weak.requests if "acquire" in line]
    assert caller(store.release("key", TOKEN, timeout=TIMEOUT))
    members: list[Operation] = [Acquire(CLAIM), Release("key", TOKEN)]
    refused, released = caller(store.many(members, timeout=TIMEOUT))
    assert isinstance(refused, StoreNotUsable)
    assert released == Released()
    enough = caller.open(f"{peer(giving('replicated')).url}?leased_require=replicated")
    caller.take(enough, "key")
    assert enough.assurance().exclusive == "replicated"


def test_a_service_that_does_not_say_grants_nothing_where_something_is_required(caller: Caller) -> None:
    """S10: while the question what it gives meets a limit, claims that require something are refused for that;
    others, and all that ends a lease, go through."""
    door = Door()
    with running(MemoryStore(BlockingClock()), gate=cast("Any", door)) as service:
        url = service.url.replace("://", f"://:{SECRET}@")
        door.limited = True
        plain, strict = caller.open(url), caller.open(f"{url}?leased_require=process")
        caller.take(plain, "key")
        assert not plain.assurance().known
        with pytest.raises(RateLimited) as caught:
            caller(strict.acquire(Claim("other", TOKEN, 30.0), timeout=TIMEOUT))
        assert caught.value.retry_after == 9.0
        assert caller(strict.release("key", TOKEN, timeout=TIMEOUT))
        door.limited = False
        caller.take(strict, "other")


def test_a_change_for_the_worse_is_an_event(caller: Caller, peer: Callable[[Behaviour], Peer]) -> None:
    """S10: after a failure, the new connection finds less than the one before."""
    words = ["replicated", "volatile"]

    def behave(first: str, connection: Any) -> None:
        if "release" in first:
            words.pop(0)
            connection.shutdown(socket.SHUT_RDWR)
        else:
            giving(words[0])(first, connection)

    store = caller.open(peer(behave).url)
    with pytest.raises(StoreUnavailable):
        caller(store.release("key", TOKEN, timeout=TIMEOUT))
    assert store.assurance().exclusive == "replicated"
    caller.take(store, "key")
    assert [event.name for event in caller.events] == ["assurance_changed"]
    assert caller.events[0].data["before"] == "replicated"
