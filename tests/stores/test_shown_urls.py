"""What of a URL may be shown: the place, and nothing of a password, however it was written."""

import pytest

from leased.targets import hide_secrets

SHOWN = [
    ("sqlite:/var/lib/locks.db", "sqlite:/var/lib/locks.db"),
    ("redis://localhost", "redis://localhost"),
    ("redis://:open-sesame@localhost:6379/1?ssl_cert_reqs=none", "redis://localhost:6379/1"),
    ("postgresql://me:open-sesame@[::1]:5432/app", "postgresql://[::1]:5432/app"),
    ("redis+sentinel://u:open-sesame@a:1,b:2,c/service/0", "redis+sentinel://a:1,b:2,c/service/0"),
    ("https://:lk_1_open-sesame@locks.example:8443/base?leased_ca=/etc/ca.pem", "https://locks.example:8443/base"),
    ("postgresql:///app?host=/run/postgresql&password=open-sesame", "postgresql:///app"),
]
BADLY_WRITTEN = [
    "mysql://user:open/sesame@host/db",
    "mysql://user:open#sesame@host/db",
    "redis://:open?sesame@host/0",
    "redis://:open#sesame@host",
    "redis+sentinel://user:open/sesame@a,b/service",
    "postgresql://user:open@sesame/with@host/db",
    "redis://user:open-sesame",
    "redis:user:open-sesame@host",
    "https://:open/sesame@locks.example",
    "redis+unix:user:open?sesame@host",
]


@pytest.mark.parametrize(("url", "shown"), SHOWN)
def test_a_place_is_shown_without_login_and_parameters(url: str, shown: str) -> None:
    """SEC3: logs and errors name the store without its password."""
    assert hide_secrets(url) == shown


@pytest.mark.parametrize("url", BADLY_WRITTEN)
def test_a_password_that_was_not_escaped_is_not_shown_either(url: str) -> None:
    """SEC3: where a password ends the place too early, or stands where a port should, only the scheme is shown."""
    assert hide_secrets(url) == f"{url.partition(':')[0]}:…"


def test_a_url_whose_colon_was_forgotten_shows_no_password() -> None:
    """SEC3: what is no URL at all, but has a place in it, is not shown."""
    assert hide_secrets("redis//user:open?sesame@host") == "…"
    assert hide_secrets("locks.db") == "locks.db"
