"""Reading the URL of a MySQL store."""

import re

import pytest

from leased.errors import InvalidRequest, StoreNotUsable
from leased.stores._mysql_place import _PARAMETERS, Tls, place
from tests.docs.pages import ROOT


def test_everything_in_a_url_is_read() -> None:
    """User, password, host, port and database come out as they were meant; `+` and percent signs are kept apart."""
    found = place("mysql://j%40ne:s%2Fe+cret@DB.example:3307/app")
    assert (found.user, found.password, found.port, found.database) == ("j@ne", "s/e+cret", 3307, "app")
    assert found.address == "db.example:3307/app"
    assert found.tls is None
    assert not found.private


def test_what_is_left_out_has_a_default() -> None:
    """Without a host it is this one, without a port 3306; both spellings of the scheme lead to the same place."""
    assert place("mysql:///app").address == place("mariadb://me:secret@localhost:3306/app").address


def test_no_secret_is_shown() -> None:
    """A place can be printed: neither it nor its errors hold the password."""
    assert "open-sesame" not in repr(place("mysql://me:open-sesame@host/app?unix_socket=/run/db"))
    for url in ("mysql://me:open-sesame@host", "mysql://me:open-sesame@host:x/app", "mysql://a:open-sesame@host/a/b"):
        with pytest.raises(InvalidRequest) as caught:
            place(url)
        assert "open-sesame" not in str(caught.value)


SPLIT_PASSWORDS = (
    "mysql://user:hun/ter2@host/db",
    "mysql://user:hun#ter2@host/db",
    "mysql://user:hun?ter2@host/db",
    "mysql://user:12/hunter2@host",
    "mysql://user:12#hunter2@host/db",
    "mysql://user:12?hunter2@host/db",
    "mysql://user:12?ssl=hunter2@host/db",
    "mysql://user:a@b/hunter2@host",
    "mysql://user:a@b/c#hunter2@host/db",
    "mysql://user:a@b?hunter2@host/db",
    "mysql://user:hun[ter2@host/db",
)


@pytest.mark.parametrize("url", SPLIT_PASSWORDS)
def test_a_password_that_splits_the_url_is_refused_unseen(url: str) -> None:
    """`/`, `?`, `#` and `[` in a password end or break the host: what then seems to be a port, a database or a
    parameter is a part of the secret. It is refused, no part of it is shown, and nothing that holds it is chained."""
    with pytest.raises(InvalidRequest, match="%2F") as caught:
        place(url)
    told = f"{caught.value!s} {caught.value!r}"
    for part in ("hun", "ter2"):
        assert part not in told
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize(
    ("query", "tls"),
    [
        ("ssl_ca=/c%40.pem", Tls(authorities="/c@.pem")),
        ("charset=utf8mb4", None),
        ("ssl=true", Tls()),
        ("ssl=false", None),
        ("ssl_ca=/ca.pem", Tls(authorities="/ca.pem")),
        ("ssl_cert=/c.pem&ssl_key=/k.pem", Tls(certificate="/c.pem", key="/k.pem")),
        ("ssl_verify=false", Tls(verify=False)),
    ],
)
def test_tls_is_verified_unless_told_otherwise(query: str, tls: Tls | None) -> None:
    """Asking for TLS, in whatever way, means that the server has to prove who it is."""
    assert place(f"mysql://host/app?{query}").tls == tls


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://host", "names no database"),
        ("mysql://host/", "names no database"),
        ("mysql://host/a/b", "names no database"),
        ("mysql://host:0/app", "port 0"),
        ("mysql://host:70000/app", "cannot be read"),
        ("mysql://host/app?sslmode=require", "unknown parameter sslmode"),
        ("mysql://host/app?ssl=maybe", "ssl is 'maybe'"),
        ("mysql://host/app?ssl=false&ssl_ca=/ca.pem", "exclude each other"),
        ("mysql://host/app?ssl_key=/k.pem", "name the certificate's file by ssl_cert"),
        ("mysql://host/app?ssl=true&unix_socket=/s", "has no TLS"),
    ],
)
def test_a_url_that_cannot_work_is_refused(url: str, message: str) -> None:
    """What is wrong with it is said before anything is opened."""
    with pytest.raises(InvalidRequest, match=message):
        place(url)


def test_every_parameter_is_explained() -> None:
    """The page of the store has a row for each parameter that a URL may have, and for no other."""
    page = (ROOT / "docs" / "stores" / "mysql.md").read_text()
    rows = re.findall(r"^\| `([a-z_]+)=[^`]*` \| \S", page, flags=re.MULTILINE)
    assert sorted(row for row in rows if not row.startswith("leased_")) == sorted(_PARAMETERS)


def test_files_of_tls_that_cannot_be_read_are_named() -> None:
    """A wrong path is not usable, and the message says which."""
    with pytest.raises(StoreNotUsable, match=r"/nowhere/ca\.pem"):
        Tls(authorities="/nowhere/ca.pem").context()
