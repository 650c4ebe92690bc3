"""Settings of the service: where they come from, and what cannot go together."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from leased.errors import InvalidRequest
from leased.server.settings import PREFIX, Settings, read_settings


def test_the_environment_names_every_setting() -> None:
    """Each setting can be given as `LEASED_SERVE_` and its name; what is given directly counts more."""
    given = {"MAX_WAITERS": "7", "INSECURE": "yes", "IDLE_TIMEOUT": "1m30s", "ALLOWED_HOSTS": "a,b", "KEYS": "any"}
    settings = read_settings({PREFIX + name: text for name, text in given.items()}, port=1, host=None)
    assert (settings.max_waiters, settings.insecure, settings.idle_timeout) == (7, True, 90.0)
    assert (settings.allowed_hosts, settings.keys, settings.port, settings.host) == (("a", "b"), "any", 1, "127.0.0.1")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("PORTS", "1"),
        ("PORT", "65536"),
        ("PORT", "-1"),
        ("PORT", "x"),
        ("INSECURE", "maybe"),
        ("KEYS", "some"),
        ("DRAIN", ""),
    ],
)
def test_a_wrong_setting_is_named(name: str, text: str) -> None:
    """A setting that does not exist or cannot be read is told by its name."""
    with pytest.raises(InvalidRequest, match=name.lower() if name != "PORTS" else "PORTS.*mean LEASED_SERVE_PORT"):
        read_settings({PREFIX + name: text})


@pytest.mark.parametrize("text", ["a.example,b.example", "a.example, b.example", " a.example ,, b.example,\n"])
def test_lists_are_read_as_people_write_them(text: str) -> None:
    """Spaces and what is empty are no part of a name that nobody could then call the service by."""
    settings = read_settings({f"{PREFIX}ALLOWED_HOSTS": text, f"{PREFIX}JWT_ALGORITHMS": "RS256, ES256"})
    assert (settings.allowed_hosts, settings.jwt_algorithms) == (("a.example", "b.example"), ("RS256", "ES256"))
    assert read_settings({f"{PREFIX}ALLOWED_HOSTS": ""}).allowed_hosts == ()
    assert read_settings({}, allowed_hosts=[" a.example", ""]).allowed_hosts == ("a.example",)


@pytest.mark.parametrize(
    "name",
    ["b.example:8370", "https://b.example", "b.example/ui", "*.example", "a b", "::1", "[::1]:80", "b\u00fc.example"],
)
def test_a_name_that_no_request_can_have_is_refused(name: str) -> None:
    """A name with a port or a scheme would never match: that is told at the start, not by a 421 to each request."""
    with pytest.raises(InvalidRequest) as refused:
        read_settings({f"{PREFIX}ALLOWED_HOSTS": f"Locks.example,{name}"})
    assert f"allowed_hosts: {name!r} is not the name of a host" in str(refused.value)
    assert "without scheme and port" in (refused.value.hint or "")
    assert read_settings({}, allowed_hosts=("Locks.example", "192.0.2.1", "[2001:db8::1]", "my_locks")).allowed_hosts


def test_strangers_need_credentials() -> None:
    """§7: another address than a loopback one demands credentials or an explicit `insecure`."""
    for host in ("127.0.0.1", "::1", "localhost", "127.9.9.9"):
        assert read_settings({}, host=host).host == host
    for host in ("0.0.0.0", "::", "192.0.2.1", "locks.example", ""):
        with pytest.raises(InvalidRequest, match="loopback"):
            read_settings({}, host=host)
        assert read_settings({}, host=host, insecure=True).insecure
        assert read_settings({}, host=host, registry="keys.db").host == host


def test_settings_that_contradict_each_other_are_refused() -> None:
    """TLS needs a certificate; the shortest ttl is not above the longest."""
    for wrong in ({"tls_key": "k"}, {"tls_client_authority": "a"}, {"min_ttl": 100.0, "max_ttl": 50.0}):
        with pytest.raises(InvalidRequest):
            read_settings({}, **wrong)


@pytest.mark.parametrize("store", ["https://locks.example", "HTTP://127.0.0.1:8370"])
def test_credentials_of_two_services_do_not_go_together(store: str) -> None:
    """V5: behind a service with credentials another one would refuse every key; that is told at the start."""
    with pytest.raises(InvalidRequest, match="another lock service"):
        read_settings({}, store=store, registry="registry.db")
    assert read_settings({}, store=store).open


def test_every_setting_says_what_it_is() -> None:
    """The source has a text below each setting: the page of settings is made of them. Secrets are not shown."""
    source = (Path(__file__).parents[2] / "src/leased/server/settings.py").read_text()
    for one in fields(Settings):
        assert f"\n    {one.name}: " in source
        assert source.partition(f"\n    {one.name}: ")[2].split("\n", 2)[1].strip().startswith('"""'), one.name
    assert "hush" not in repr(Settings(store="redis://:hush@h", metrics_token="hush"))
