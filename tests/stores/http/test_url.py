"""URLs of lock services: what they mean, and refusals that say what is wrong without showing a secret."""

from collections.abc import Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leased.clocks import BlockingClock
from leased.errors import InvalidRequest
from leased.stores._http_names import Names
from leased.stores._http_url import Address, place_of, read_address
from leased.targets import Options, read_url

SECRET = "lk_1_s3cret"


def address(url: str, own: Mapping[str, str] | None = None) -> Address:
    """What the URL says."""
    return read_address(url, Options(BlockingClock(), own=own or {}))


@pytest.fixture(autouse=True)
def _no_credential(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEASED_API_KEY", raising=False)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("https://locks.example", ("locks.example", 443, True, "", "locks.example")),
        ("https://locks.example:8443/", ("locks.example", 8443, True, "", "locks.example:8443")),
        ("https://LOCKS.example/base/", ("locks.example", 443, True, "/base", "locks.example")),
        ("http://127.0.0.1:8370", ("127.0.0.1", 8370, False, "", "127.0.0.1:8370")),
        ("http://localhost", ("localhost", 80, False, "", "localhost")),
        ("http://[::1]:1", ("::1", 1, False, "", "[::1]:1")),
        ("https://bücher.example", ("xn--bcher-kva.example", 443, True, "", "xn--bcher-kva.example")),
    ],
)
def test_a_url_names_a_service(url: str, place: tuple[object, ...]) -> None:
    """Host, port and path are read as every client of HTTP reads them."""
    found = address(url)
    assert (found.host, found.port, found.tls, found.path, found.authority) == place


def test_a_credential_is_taken_from_the_url_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC3, SEC16: the URL's counts first, without one that of the environment; nothing that is printed shows it."""
    assert address("https://h").credential is None
    monkeypatch.setenv("LEASED_API_KEY", f"{SECRET}2")
    found = address(f"https://:{SECRET}%2F@h/base")
    assert found.credential == f"{SECRET}/"
    assert SECRET not in repr(found)
    assert str(found) == "https://h/base"
    found = address("https://h")
    assert found.credential == f"{SECRET}2"
    assert SECRET not in repr(found)


@pytest.mark.parametrize(
    ("url", "own", "word"),
    [
        ("https://", {}, "https://HOST"),
        ("https://h:port", {}, "https://HOST"),
        ("https://h:0", {}, "https://HOST"),
        ("https://h:99999", {}, "https://HOST"),
        ("https://[::1", {}, "https://HOST"),
        ("https://h?colour=blue", {}, "leased_"),
        ("https://h#part", {}, "fragment"),
        ("https://h/a b", {}, "path"),
        ("https://h/a\r\nX: y", {}, "path"),
        (f"https://user:{SECRET}@h", {}, "LEASED_API_KEY"),
        (f"https://{SECRET}@h", {}, "LEASED_API_KEY"),
        (f"https://:{SECRET}%0D%0A@h", {}, "credential"),
        (f"https://:{SECRET}%20@h", {}, "credential"),
        (f"https://:{SECRET}%C3%A4@h", {}, "credential"),
        (f"https://{'a' * 64}.example", {}, "host.*1 to 63"),
        ("http://locks.example", {}, "leased_insecure=1"),
        ("http://10.0.0.1", {}, "leased_insecure=1"),
        ("http://127.0.0.1.example", {}, "leased_insecure=1"),
        ("http://localhost", {"ca": "f"}, "leased_ca.*write https://"),
        ("https://h", {"cert_key": "f"}, "leased_cert"),
        ("http://locks.example", {"insecure": "2"}, "leased_insecure"),
        ("https://h", {"insecure": "yes"}, "leased_insecure"),
    ],
)
def test_a_wrong_url_is_refused_with_a_way_on(url: str, own: Mapping[str, str], word: str) -> None:
    """What is wrong is named, or the form that is wanted, and no secret."""
    with pytest.raises(InvalidRequest, match=word) as caught:
        address(url, own)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("value", ["two words", "line\nbreak", "ä", "x" * 9_000])
def test_a_credential_in_the_environment_is_checked_as_well(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would change the request, or cannot be one, is refused, and not shown."""
    monkeypatch.setenv("LEASED_API_KEY", value)
    with pytest.raises(InvalidRequest, match="LEASED_API_KEY") as caught:
        address("https://h")
    assert value not in str(caught.value)


def test_plain_http_to_other_machines_has_to_be_asked_for() -> None:
    """SEC18: without TLS only this machine is talked to, unless the URL says otherwise."""
    for host in ("127.0.0.1", "127.8.8.8", "[::1]", "localhost", "locks.localhost"):
        assert not address(f"http://{host}").tls
    assert address("http://locks.example", {"insecure": "1"}).host == "locks.example"


def test_parameters_are_taken_from_the_url() -> None:
    """What `connect` reads of a URL goes to this store."""
    target = read_url("https://h?leased_ca=/etc/ca.pem&leased_pool=2&leased_cert=/c", Options(BlockingClock()))
    found = read_address(target.url, target.options)
    assert (found.ca, found.cert, found.cert_key) == ("/etc/ca.pem", "/c", None)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://h", "https://:key@H:443/", True),
        ("https://h", "https://h:444", False),
        ("https://h", "http://h", False),
        ("https://h/a", "https://h/a/", True),
        ("https://h/a", "https://h/b", False),
    ],
)
def test_a_place_is_the_same_however_it_is_written(one: str, other: str, *, same: bool) -> None:
    """W4: clients of one service share their lines."""
    assert (place_of(one) == place_of(other)) is same


_TEXT = st.text(alphabet=":.ab", max_size=6)


@given(one=st.tuples(_TEXT, _TEXT), other=st.tuples(_TEXT, _TEXT))
@example(one=("a", "b:c"), other=("a:b", "c"))
@example(one=("a:", "b"), other=("a", ":b"))
@example(one=("a::b", "c"), other=("a", "b::c"))
@example(one=("a:.", "c"), other=("a:", "c"))
def test_no_two_namespaces_share_a_key(one: tuple[str, str], other: tuple[str, str]) -> None:
    """S3: a namespace is the beginning of its keys, and no key of another namespace is called the same."""
    if one != other and one[0] and other[0]:
        assert Names(one[0]).inside(one[1]) != Names(other[0]).inside(other[1])


def test_keys_are_called_as_people_would_call_them() -> None:
    """What other clients of the service see: the plain key, or the namespace, `::` and the key."""
    assert Names("").inside("a::b") == "a::b"
    assert Names("staging").inside("nightly:1") == "staging::nightly:1"
    assert Names("team:staging").inside("k") == "team:staging::k"
    assert Names("odd:").inside("k") == "odd:.::k"


def test_a_key_has_to_fit_with_its_namespace() -> None:
    """Together they are one key at the service; the limit is told with the number of characters."""
    assert len(Names("n" * 10).inside("k" * 243)) == 255
    with pytest.raises(InvalidRequest, match="256") as caught:
        Names("n" * 10).inside("k" * 244)
    assert caught.value.code == "LOCK_KEY_INVALID"
