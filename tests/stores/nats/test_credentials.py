"""Who connects and how that is proved: user and password, token, NKey, credentials file, certificate of the client."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import leased
from leased.errors import StoreNotUsable
from leased.model import Released
from tests.servers import certificates
from tests.servers.nats_access import trusted, user_key
from tests.servers.process import Server
from tests.stores.nats.conftest import TIMEOUT, TOKEN, Caller

PASSWORD = "sesame/open"


def kept(directory: Path, text: str) -> str:
    """A file with that text, as a URL names it."""
    file = directory / "secret file"
    file.write_text(text)
    return quote(str(file), safe="")


def lock_and_free(caller: Caller, url: str) -> Any:
    """The store at that URL, after one lock and one release."""
    store = caller.open(url)
    caller.take(store, "key")
    assert caller(store.release("key", TOKEN, timeout=TIMEOUT)) == Released()
    return store


def refused(caller: Caller, url: str, words: str) -> str:
    """What the refusal of that URL says; nothing is held up by it."""
    with pytest.raises(StoreNotUsable, match=words) as caught:
        caller(caller.open(url).status("key", timeout=TIMEOUT))
    return str(caught.value) + str(caught.value.hint)


def test_a_user_with_a_password(caller: Caller, private_nats: Callable[..., Server]) -> None:
    """SEC: user and password of the URL; none and wrong ones are named, and never shown."""
    server = private_nats(configuration=f'authorization {{ user: locker, password: "{PASSWORD}" }}')
    where = f"{server.host}:{server.port}"
    lock_and_free(caller, f"nats://locker:{quote(PASSWORD, safe='')}@{where}")
    for login in ("", "locker:open-wrong@", "stranger:open-wrong@", "open-wrong@"):
        assert "open-wrong" not in refused(caller, f"nats://{login}{where}", "refuses these credentials")


def test_a_token(caller: Caller, private_nats: Callable[..., Server]) -> None:
    """SEC: one word before the host is a token."""
    server = private_nats(configuration=f'authorization {{ token: "{PASSWORD}" }}')
    where = f"{server.host}:{server.port}"
    lock_and_free(caller, f"nats://{quote(PASSWORD, safe='')}@{where}")
    assert "open-wrong" not in refused(caller, f"nats://open-wrong@{where}", "refuses these credentials")


def test_an_nkey(caller: Caller, private_nats: Callable[..., Server], tmp_path: Path) -> None:
    """SEC: the seed in a file signs what the server asks; that of somebody else, or of nobody, is refused."""
    own, other = user_key(), user_key()
    server = private_nats(configuration=f"authorization {{ users: [ {{ nkey: {own.name} }} ] }}")
    url = f"nats://{server.host}:{server.port}?leased_nkey="
    lock_and_free(caller, url + kept(tmp_path, own.seed + "\n"))
    assert other.seed not in refused(caller, url + kept(tmp_path, other.seed), "refuses these credentials")
    assert "no seed" not in refused(caller, url + kept(tmp_path, "no seed"), "leased_nkey=.*secret file")
    refused(caller, url + quote(str(tmp_path / "missing"), safe=""), "leased_nkey=.*missing")


def test_a_credentials_file(caller: Caller, private_nats: Callable[..., Server], tmp_path: Path) -> None:
    """SEC: a `.creds` file of an account that the server's operator signed; another operator's is refused."""
    own, other = trusted(), trusted()
    server = private_nats(configuration=own.configuration)
    url = f"nats://{server.host}:{server.port}?leased_credentials="
    store = lock_and_free(caller, url + kept(tmp_path, own.credentials))
    assert store.assurance().exclusive == "primary"
    refused(caller, url + kept(tmp_path, other.credentials), "refuses these credentials")
    refused(caller, url + kept(tmp_path, "nothing of use"), "leased_credentials=.*secret file")
    refused(caller, url + quote(str(tmp_path / "missing"), safe=""), "leased_credentials=.*missing")


def test_a_certificate_is_shown_where_it_is_asked_for(caller: Caller, private_nats: Callable[..., Server]) -> None:
    """SEC: where the server verifies clients the certificate of the URL is enough, and without one nothing is done."""
    server = private_nats(tls=True, client_certificates=True)
    place = server.place
    shown = f"&leased_cert={certificates.certificate_file(place)}&leased_cert_key={certificates.key_file(place)}"
    lock_and_free(caller, server.url + shown)
    with pytest.raises(leased.StoreUnavailable) as caught:
        caller(caller.open(server.url).status("key", timeout=TIMEOUT))
    assert caught.value.applied is False


def test_files_of_tls_that_cannot_be_used_are_named(
    caller: Caller, private_nats: Callable[..., Server], tmp_path: Path
) -> None:
    """SEC: a missing or wrong file is told by its parameter, before anything is sent."""
    server = private_nats(tls=True)
    bare = server.url.partition("?")[0]
    refused(caller, f"{bare}?leased_ca={quote(str(tmp_path / 'missing'), safe='')}", "leased_ca=.*missing")
    nothing = kept(tmp_path, "nothing of use")
    refused(caller, f"{server.url}&leased_cert={nothing}", "leased_cert=.*secret file")


def test_a_waiter_is_woken_whoever_it_is(private_nats: Callable[..., Server], tmp_path: Path) -> None:
    """W3: the watching connection shows the same credentials."""
    own = trusted()
    server = private_nats(configuration=own.configuration)
    url = f"nats://{server.host}:{server.port}?leased_credentials={kept(tmp_path, own.credentials)}"
    with leased.connect(url) as locks, leased.connect(url) as others:
        held = others.lock("key", ttl=60).acquire()
        assert locks.lock("key", wait=0.3).try_acquire() is None
        assert held.release()
        with locks.lock("key", wait=10):
            pass
