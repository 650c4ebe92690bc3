"""Redis URLs: what they mean, and refusals that say what is wrong without showing a secret."""

from typing import Any

import pytest

from leased.errors import InvalidRequest
from leased.stores._redis_url import Login, Node, place_of, read_address
from leased.targets import hide_secrets

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("url", "nodes", "database"),
    [
        ("redis://localhost", (Node("localhost", 6379),), 0),
        ("redis://", (Node("localhost", 6379),), 0),
        ("valkey://h:1/3", (Node("h", 1),), 3),
        ("redis://h?db=4", (Node("h", 6379),), 4),
        ("redis://[::1]:7", (Node("::1", 7),), 0),
        ("redis+sentinel://a,b:7/main/2", (Node("a", 26379), Node("b", 7)), 2),
        ("redis+unix:///run/a%20b.sock?db=2", (Node("/run/a b.sock", None),), 2),
        ("redis+cluster://a:1,b:2", (Node("a", 1), Node("b", 2)), 0),
    ],
)
def test_a_url_names_servers_and_database(url: str, nodes: tuple[Node, ...], database: int) -> None:
    """Hosts, ports and database are read as redis-py reads them, several hosts with commas between."""
    address = read_address(url)
    assert (address.nodes, address.database) == (nodes, database)


def test_logins_are_read_and_not_shown() -> None:
    """User and password are unquoted; nothing that prints an address shows them."""
    address = read_address(f"rediss://user:{SECRET}%40@h/0?ssl_cert_reqs=none")
    assert address.login == Login("user", f"{SECRET}@")
    assert address.tls
    assert dict(address.options) == {"ssl_cert_reqs": "none"}
    assert SECRET not in repr(address)
    assert SECRET not in address.shown
    sentinel = read_address(f"redis+sentinel://:{SECRET}@h/main?sentinel_password={SECRET}2")
    assert sentinel.sentinel_login == Login(None, f"{SECRET}2")
    assert SECRET not in repr(sentinel)


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("redis://h/name", "database"),
        ("redis://h/0/1", "redis://"),
        ("redis://h:port", "port"),
        ("redis://h?colour=blue", "colour"),
        ("redis://h?db=x", "db"),
        ("redis://h?client_name=two%20words", "client_name"),
        ("redis+sentinel://h", "SERVICE"),
        ("redis+unix://h/run/a.sock", "SOCKET"),
        ("redis+unix://", "SOCKET"),
        ("redis+cluster://h/1", "one database"),
    ],
)
def test_a_wrong_url_is_refused_with_a_way_on(url: str, word: str) -> None:
    """What is wrong is named, or the form that is wanted."""
    with pytest.raises(InvalidRequest, match=word) as caught:
        read_address(url.replace("://", f"://u:{SECRET}@"))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("redis://localhost", "redis://LOCALHOST:6379/0", True),
        ("redis://u:p@h/1", "redis://h/1?decode_responses=true", True),
        ("redis+cluster://a,b", "redis+cluster://b:6379,a", True),
        ("redis://h/1", "redis://h?db=1", True),
        ("redis://h/1", "redis://h/2", False),
        ("redis://h?db=1", "redis://h?db=2", False),
        ("redis+unix:///a", "redis+unix:///b", False),
        ("redis+sentinel://h/a", f"redis+sentinel://h/a?db=0&sentinel_password={SECRET}", True),
        ("redis://h", "redis+cluster://h", False),
        ("redis+sentinel://h/a", "redis+sentinel://h/b", False),
    ],
)
def test_a_place_is_the_same_however_it_is_spelled(one: str, other: str, *, same: bool) -> None:
    """Clients that mean the same data share what the process keeps for it."""
    assert (place_of(one) == place_of(other)) is same


@pytest.mark.parametrize("own", [{"pool": "0"}, {"pool": "many"}, {"wait": "-1"}, {"pool": "1001"}])
def test_own_parameters_are_checked(own: Any, caller: Any) -> None:
    """`leased_pool` and `leased_wait` are whole numbers in a range."""
    with pytest.raises(InvalidRequest, match=f"leased_{next(iter(own))}"):
        caller.open("redis://localhost", own=own)


@pytest.mark.parametrize(
    "url",
    [
        "redis://:hun#ter2@host",
        "redis://user:hun/ter2@host/0",
        "redis://:hun?ter2@host/0",
        "redis://:hun?ter2=x@host/0",
        "redis://u:hun@x/ter2@host/0",
        "redis+sentinel://:hun/ter2@h/s",
    ],
)
def test_a_password_that_breaks_the_url_is_not_shown(url: str) -> None:
    """What stands before a `/`, `?` or `#` in a password looks like a port: nothing of it is said or kept."""
    with pytest.raises(InvalidRequest) as caught:
        read_address(url)
    hidden = str(caught.value).replace(hide_secrets(url), "")
    assert "hun" not in hidden
    assert "ter2" not in hidden
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_place_has_no_secrets() -> None:
    """Passwords, those of sentinels too, are no part of where a URL leads."""
    assert SECRET not in place_of(f"redis+sentinel://u:{SECRET}@h/main?sentinel_password={SECRET}&db=1")


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ("rediss://u:p@h/3?ssl_cert_reqs=required", True),
        ("rediss://u:p@h?ssl_cert_reqs=none", False),
        ("rediss://u:q@h?ssl_cert_reqs=required", False),
        ("redis://u:p@h", False),
    ],
)
def test_a_listening_connection_is_shared_by_who_would_open_the_same(other: str, *, same: bool) -> None:
    """User, password and TLS options decide who listens together; the database does not, for channels have none."""
    mine = read_address("rediss://u:p@h?ssl_cert_reqs=required").listening
    assert (mine == read_address(other).listening) is same
