"""What a URL of DynamoDB says, and what is wrong in one."""

from __future__ import annotations

import pytest

import leased
from leased.clocks import BlockingClock
from leased.errors import InvalidRequest
from leased.stores._dynamodb_url import Table, read_table
from leased.targets import Options, read_url


def read(url: str) -> Table:
    """The URL as the store gets it."""
    target = read_url(url, Options(clock=BlockingClock()))
    return read_table(target.url, target.options)


@pytest.mark.parametrize(
    ("url", "name", "region", "endpoint"),
    [
        ("dynamodb://eu-central-1/locks", "locks", "eu-central-1", ""),
        ("dynamodb://us-gov-west-1/a.b_c-d", "a.b_c-d", "us-gov-west-1", ""),
        ("dynamodb:///locks", "locks", "", ""),
        ("dynamodb:///locks?leased_region=eu-west-1", "locks", "eu-west-1", ""),
        ("dynamodb://eu-west-1", "leased", "eu-west-1", ""),
        ("dynamodb://localhost/locks", "locks", "", "http://localhost"),
        ("dynamodb://127.0.0.1:8000/locks?leased_region=eu-west-1", "locks", "eu-west-1", "http://127.0.0.1:8000"),
        (
            "dynamodb://eu-west-1/locks?leased_endpoint=https://vpce.example",
            "locks",
            "eu-west-1",
            "https://vpce.example",
        ),
    ],
)
def test_a_url_is_read(url: str, name: str, region: str, endpoint: str) -> None:
    """Region and table, or an emulator on this machine, or another endpoint."""
    table = read(url)
    assert (table.name, table.region, table.endpoint) == (name, region, endpoint)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("dynamodb://AKIA:secret@eu-west-1/locks", "has credentials in it"),
        ("dynamodb://eu-west-1/a", "'a' is no name of a table"),
        ("dynamodb://eu-west-1/a/b/c", "'a/b/c' is no name of a table"),
        ("dynamodb://europe/locks", "'europe' is no region"),
        ("dynamodb://eu-west-1/locks?region=eu-west-1", "parameters that are not leased_"),
        ("dynamodb://eu-west-1/locks?leased_region=eu-west-2", "the region is given twice.*leave one of them"),
        ("dynamodb://db.example:8000/locks", "not on this machine"),
        (
            "dynamodb://localhost:8000/locks?leased_endpoint=https://b.example",
            "leased_endpoint=https://b.example another .leave one of them",
        ),
        ("dynamodb://eu-west-1/locks?leased_endpoint=ftp://b.example", "is no address of a server .write https://HOST"),
        ("dynamodb://localhost:port/locks", "cannot be read"),
    ],
)
def test_what_is_wrong_is_said(url: str, says: str) -> None:
    """Each with the value; a secret is not repeated."""
    with pytest.raises(InvalidRequest, match=says) as caught:
        read(url)
    assert "secret" not in str(caught.value)


def test_nothing_is_opened_before_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """L0: connecting asks nobody, not even where the credentials are."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    with leased.connect("dynamodb://eu-central-1/locks") as locks:
        assert locks.assurance.exclusive == "unknown"
