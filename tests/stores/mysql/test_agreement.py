"""The store on a real MariaDB answers every history as the model does, for both faces, with and without joining."""

from __future__ import annotations

import pytest

from leased.testing.agreement import agree
from leased.testing.worlds import Face, joined
from tests.contract.mysql_places import mysql
from tests.servers.process import Server


@pytest.mark.parametrize("joining", [False, True], ids=["plain", "joined"])
def test_agreement(joining: bool, face: Face, mariadb_server: Server) -> None:
    """Every operation, with every option, repeated, late and by the wrong hands, and restarts between."""
    place = mysql(face, lambda: mariadb_server.url)
    agree(joined(place) if joining else place, examples=15, steps=40)
