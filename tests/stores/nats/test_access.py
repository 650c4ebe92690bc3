"""How a URL is read, who may use a bucket, TLS, and that the driver writes nothing anywhere."""

import subprocess
import sys
from collections.abc import Callable

import pytest

import leased
from leased.clocks import BlockingClock
from leased.errors import InvalidRequest, StoreNotUsable
from leased.stores._nats_url import Address, place_of, read_address
from leased.targets import Options, read_url
from tests.servers.process import Server
from tests.stores.nats.conftest import TIMEOUT, Caller


def address(url: str) -> Address:
    """What a URL says."""
    target = read_url(url, Options(clock=BlockingClock()))
    return read_address(target.url, target.options)


def test_a_url_is_read_whole() -> None:
    """Servers, ports, user, password, bucket and replicas; what is left out has a usual value."""
    found = address("nats://us%40er:pass%2Fword@one,two:4333,[::1]/locks?leased_replicas=3")
    assert found.servers == (("one", 4222), ("two", 4333), ("::1", 4222))
    assert (found.user, found.password, found.bucket, found.replicas) == ("us@er", "pass/word", "locks", 3)
    plain = address("nats://host")
    assert (plain.bucket, plain.stream, plain.tls, plain.user) == ("leased", "KV_leased", False, None)
    assert address("nats://secret@host").password is None


def test_places_are_the_same_however_they_are_spelled() -> None:
    """Order of servers, usual ports, usual bucket and credentials make no other place."""
    assert place_of("nats://b,a:4222") == place_of("nats://user:word@a,b:4222/leased")
    assert place_of("nats://a") != place_of("nats://a/other")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("nats://host/a.b", "no name of a bucket"),
        ("nats://host/a/b", "no name of a bucket"),
        ("nats://host:port", "no host and port"),
        ("nats://host:0", "no host and port"),
        ("nats://host?tls=1", "does not begin with leased_"),
        ("nats://host?leased_replicas=9", "leased_replicas"),
        ("nats://host?leased_ca=/x", "nats\\+tls"),
        ("nats://u:p@host?leased_credentials=/x", "two ways"),
        ("nats://host?leased_inbox=a.*", "leased_inbox"),
        ("nats+tls://host?leased_cert_key=/x", "leased_cert beside"),
        ("nats://user:pass/word@host", "cannot be read|no host"),
    ],
)
def test_a_wrong_url_is_refused_with_what_is_wrong(url: str, why: str) -> None:
    """Nothing is connected, and no password is shown."""
    with pytest.raises(InvalidRequest, match=why) as caught:
        address(url)
    assert "word" not in str(caught.value)


USERS = """
authorization { users: [
  { user: locker, password: "open/sesame", permissions: {
      publish: ["$KV.leased.>", "$JS.API.STREAM.INFO.KV_leased", "$JS.API.STREAM.CREATE.KV_leased",
                "$JS.API.STREAM.MSG.GET.KV_leased", "$JS.API.STREAM.MSG.DELETE.KV_leased",
                "$JS.API.CONSUMER.CREATE.KV_leased", "$JS.FC.KV_leased.>"],
      subscribe: ["_INBOX_leased.>"] } },
  { user: stranger, password: other, permissions: { publish: ["nothing"], subscribe: ["_INBOX.>"] } } ] }
"""


def test_the_user_of_the_page_is_enough(caller: Caller, private_nats: Callable[..., Server]) -> None:
    """Least privilege: a user with the printed permissions can lock; one without is refused at once, by name."""
    server = private_nats(configuration=USERS)
    where = f"{server.host}:{server.port}"
    store = caller.open(f"nats://locker:open%2Fsesame@{where}?leased_inbox=_INBOX_leased")
    caller.take(store, "key")
    with pytest.raises(StoreNotUsable, match="does not let this user use"):
        caller(caller.open(f"nats://stranger:other@{where}").status("key", timeout=TIMEOUT))
    with pytest.raises(StoreNotUsable, match="refuses these credentials") as caught:
        caller(caller.open(f"nats://locker:wrong-word@{where}").status("key", timeout=TIMEOUT))
    assert "wrong-word" not in str(caught.value)


def test_a_token_opens_the_door(caller: Caller, private_nats: Callable[..., Server]) -> None:
    """A URL with one word before the host has a token."""
    server = private_nats(configuration="authorization { token: open-sesame }")
    caller.take(caller.open(f"nats://open-sesame@{server.host}:{server.port}"), "key")


def test_tls_is_verified_and_never_left_out(
    caller: Caller, private_nats: Callable[..., Server], nats_server: Server
) -> None:
    """TLS: with the authority named it works, without it is refused; a server that offers none gets no password."""
    server = private_nats(tls=True)
    caller.take(caller.open(server.url), "key")
    with pytest.raises(leased.StoreUnavailable):
        caller(caller.open(server.url.partition("?")[0]).status("key", timeout=TIMEOUT))
    plain = f"nats+tls://user:secret@{nats_server.host}:{nats_server.port}"
    with pytest.raises(StoreNotUsable, match="offers no TLS"):
        caller(caller.open(plain).status("key", timeout=TIMEOUT))


_PROGRAM = """
import asyncio, sys, threading, leased, leased.aio
url = sys.argv[1]
locks = leased.connect(url)
held = locks.lock("k", ttl=30).acquire()
waiting = threading.Thread(target=lambda: locks.lock("k", wait=600).acquire(), daemon=True)
waiting.start()
async def main():
    others = leased.aio.connect(url)
    assert await others.lock("k").try_acquire() is None
    assert await others.lock("j").try_acquire() is not None
asyncio.run(main())
"""


def test_a_program_that_closes_nothing_ends_without_a_word(nats_server: Server) -> None:
    """L10: neither the driver nor asyncio writes anything when the interpreter ends with open locks and a waiter."""
    url = f"{nats_server.url}?leased_namespace=ends"
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, url], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert "Traceback" not in done.stderr
    assert "never retrieved" not in done.stderr
    assert "destroyed" not in done.stderr
