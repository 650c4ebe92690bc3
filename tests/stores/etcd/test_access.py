"""Who may ask: users and their tokens, TLS and certificates; and what is refused in a URL."""

from collections.abc import Callable

import pytest

import leased
from leased.errors import InvalidRequest, StoreNotUsable
from leased.model import Released
from leased.stores.etcd import place_of
from leased.targets import Options, read_url
from leased.testing.clocks import MovableClock
from tests.servers import certificates
from tests.servers.etcd import ROOT_PASSWORD, ask
from tests.servers.process import Server
from tests.stores.etcd.conftest import TIMEOUT, TOKEN, Caller, open_read

SECRET = "s3cr/t:x"
QUOTED = "s3cr%2Ft%3Ax"


def url_of(server: Server, login: str = "") -> str:
    """The URL for somebody."""
    return server.url.replace("://", f"://{login}@") if login else server.url


def test_a_user_needs_his_password_and_may_do_what_his_role_allows(
    caller: Caller, private_etcd: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    """SEC: the user of the page is enough; a wrong password, none and a role for other keys are named, never shown."""
    server = private_etcd(users=[f"app {SECRET} leased/", f"other {SECRET} elsewhere/"])
    store = caller.open(url_of(server, f"app:{QUOTED}"))
    caller.take(store, "key")
    assert caller(store.release("key", TOKEN, timeout=TIMEOUT)) == Released()
    for login, words in [
        ("app:wrong-pass", "authentication failed"),
        ("", "wants a user"),
        (f"other:{QUOTED}", "may not"),
    ]:
        with pytest.raises(StoreNotUsable, match=words) as caught:
            caller(caller.open(url_of(server, login)).status("key", timeout=TIMEOUT))
        assert "wrong-pass" not in str(caught.value)
        assert SECRET not in str(caught.value)
    assert SECRET not in caplog.text


def test_a_token_that_is_not_valid_any_more_is_replaced(caller: Caller, private_etcd: Callable[..., Server]) -> None:
    """C143: a member that was started again has forgotten all tokens, and a password may be given anew: the next call
    logs in again, on connections old and new."""
    server = private_etcd(users=[f"app {SECRET} leased/"])
    store = caller.open(url_of(server, f"app:{QUOTED}"))
    caller.take(store, "key")
    root = ask(server.place, "/v3/auth/authenticate", {"name": "root", "password": ROOT_PASSWORD})["token"]
    ask(server.place, "/v3/auth/user/changepw", {"name": "app", "password": SECRET}, token=root)
    assert caller(store.status("key", timeout=TIMEOUT)).held
    server.restart()
    assert caller(store.status("key", timeout=TIMEOUT)).held


def test_users_that_are_turned_on_or_off_meanwhile(caller: Caller, private_etcd: Callable[..., Server]) -> None:
    """A URL with a user works on an etcd that knows none, and goes on when it begins to."""
    server = private_etcd()
    store = caller.open(url_of(server, f"root:{QUOTED}"))
    caller.take(store, "key")
    ask(server.place, "/v3/auth/user/add", {"name": "root", "password": SECRET})
    ask(server.place, "/v3/auth/user/grant", {"user": "root", "role": "root"})
    ask(server.place, "/v3/auth/enable", {})
    assert caller(store.status("key", timeout=TIMEOUT)).held


def test_a_waiter_with_a_user_is_woken(private_etcd: Callable[..., Server]) -> None:
    """W3: the watching connection logs in as well."""
    server = private_etcd(users=[f"app {SECRET} leased/"])
    rung: list[None] = []
    with leased.connect(url_of(server, f"app:{QUOTED}")) as locks:
        held = locks.lock("key", ttl=60).acquire()
        assert held.release()
        with locks.lock("key", ttl=60, wait=5):
            rung.append(None)
    assert rung


def test_tls_is_verified(caller: Caller, private_etcd: Callable[..., Server]) -> None:
    """SEC: the authority that the URL names is trusted, the system's know nothing of it, and plain text is no TLS."""
    server = private_etcd(tls=True)
    store = caller.open(server.url)
    caller.take(store, "key")
    with pytest.raises(StoreNotUsable, match="not trusted"):
        caller(caller.open(server.url.partition("?")[0]).status("key", timeout=TIMEOUT))


def test_a_certificate_is_shown_where_it_is_asked_for(caller: Caller, private_etcd: Callable[..., Server]) -> None:
    """SEC: with `client-cert-auth` the certificate of the URL is enough, and without one nothing is answered."""
    server = private_etcd(tls=True, client_certificates=True)
    place = server.place
    shown = f"&leased_cert={certificates.certificate_file(place)}&leased_cert_key={certificates.key_file(place)}"
    caller.take(caller.open(server.url + shown), "key")
    with pytest.raises(leased.StoreUnavailable):
        caller(caller.open(server.url).status("key", timeout=TIMEOUT))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("etcd:", "form"),
        ("etcd://", "form"),
        ("etcd://h/path", "form"),
        ("etcd://h#part", "form"),
        ("etcd://h?x=1", "does not begin with leased_"),
        ("etcd://h:ter2", "no host and port"),
        ("etcd://h:0", "no host and port"),
        ("etcd://h,,i", "no host and port"),
        ("etcd://[::1", "cannot be read"),
        ("etcd://user@h", "user without a password"),
        ("etcd://:hunter2@h", "user without a password"),
        ("etcd://user:hun/ter2@h", "cannot be read"),
        ("etcd://h?leased_ca=x", "is for etcds://.*write etcds://, or leave it out"),
        ("etcds://h?leased_cert_key=x", "needs leased_cert"),
        ("etcd://h?leased_pool=0", "whole number"),
        ("etcd://h?leased_table=x", "unknown parameter"),
    ],
)
def test_a_wrong_url_says_what_is_wrong(url: str, words: str) -> None:
    """S9: what is wrong in a URL is named before anything is opened, without its secrets."""
    with pytest.raises(InvalidRequest, match=words) as caught:
        open_read(url, face="blocking", options=Options(MovableClock()))
    assert "ter2" not in str(caught.value)


def test_one_place_has_one_name() -> None:
    """The same members are the same place however they are written."""
    assert place_of("etcd://a,B:2379") == place_of("etcds://u:p@b,A:2379/") == "a:2379,b:2379"
    assert place_of("etcd://[::1]") == place_of("etcd://[::1]:2379")
    assert read_url("etcd://u:p@a,b:1", Options(MovableClock())).shown == "etcd://a,b:1"


def test_what_is_no_etcd_is_said_to_be_none(caller: Caller, service_server: Server) -> None:
    """Something else on that port is named, and holds nobody up."""
    with pytest.raises(leased.StoreUnavailable, match="does not know /v3/|no object"):
        caller(caller.open(f"etcd://{service_server.host}:{service_server.port}").status("key", timeout=TIMEOUT))
