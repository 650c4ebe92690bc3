"""The contract of stores on a real MariaDB, for both faces, with and without joining."""

from __future__ import annotations

import pytest

from leased.testing.contract import CHECKS, Check
from leased.testing.runner import run_check
from leased.testing.worlds import Face, Place, joined
from tests.contract.mysql_places import mysql
from tests.servers.process import Server


@pytest.fixture(params=["plain", "joined"])
def place(request: pytest.FixtureRequest, face: Face, mariadb_server: Server) -> Place:
    """The store as it is, and behind what joins concurrent calls into batches."""
    plain = mysql(face, lambda: mariadb_server.url)
    return joined(plain) if request.param == "joined" else plain


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_contract(check: Check, place: Place) -> None:
    """The store keeps this promise of the contract (C021, C061, C067: expiry is the server's business alone)."""
    result = run_check(check, place)
    if result.error:
        raise result.error
    assert result.outcome == "passed", result.message
