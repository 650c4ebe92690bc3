"""MariaDB from Debian, run by an account that is not root. It makes no tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pymysql
import pymysql.cursors

from tests.servers import certificates
from tests.servers.accounts import account_for
from tests.servers.found import mariadb_program
from tests.servers.moving_clock import MovingClock
from tests.servers.process import Place, Recipe, Server, no_environment

USER, PASSWORD, DATABASE = "leased", "open-sesame", "leased"

FAST = {
    "innodb-buffer-pool-size": "32M",
    "innodb-log-file-size": "16M",
    "innodb-flush-log-at-trx-commit": "2",
    "innodb-doublewrite": "0",
    "innodb-use-native-aio": "0",
    "max-connections": "200",
}
DURABLE = {"innodb-flush-log-at-trx-commit": "1", "innodb-doublewrite": "1"}

FIRST_STATEMENTS = f"""
FLUSH PRIVILEGES;
CREATE DATABASE {DATABASE};
CREATE USER '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';
GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'%' WITH GRANT OPTION;
"""


def start(*, settings: Mapping[str, str] | None = None, tls: bool = False, clock: MovingClock | None = None) -> Server:
    """A running server with the user and the database `leased`; settings as options of `mariadbd`.

    As it is, a killed server still has all it confirmed, a machine without power has not; `DURABLE` makes it so. With
    TLS, connections without it are refused, and `certificates.authority_file(server.place)` is what clients trust.
    """
    return Server(_recipe({**FAST, **(settings or {})}, tls=tls, clock=clock))


def connection_to(place: Place, *, tls: bool = False) -> pymysql.Connection[pymysql.cursors.Cursor]:
    """A connection that commits each statement."""
    return pymysql.connect(
        host=place.host,
        port=place.port,
        user=USER,
        password=PASSWORD,
        database=DATABASE,
        connect_timeout=5,
        read_timeout=5,
        autocommit=True,
        ssl_ca=str(certificates.authority_file(place)) if tls else None,
        ssl_disabled=not tls,
    )


def _recipe(settings: Mapping[str, str], *, tls: bool, clock: MovingClock | None) -> Recipe:
    program = mariadb_program()

    def command(place: Place) -> list[str]:
        where = {
            "datadir": str(place.data),
            "tmpdir": str(place.data),
            "bind-address": place.host,
            "port": str(place.port),
            "socket": str(place.data / "socket"),
            "pid-file": str(place.data / "pid"),
            **(_secure(place) if tls else {}),
        }
        given = [f"--{name}={value}" for name, value in {**settings, **where}.items()]
        return [str(program), "--no-defaults", "--skip-name-resolve", "--skip-log-bin", *given]

    def answers(place: Place, _pid: int) -> bool:
        try:
            return bool(_asked(place, "SELECT @@datadir", tls=tls) == f"{place.data}/")
        except pymysql.OperationalError:
            return False

    return Recipe(
        "mariadb",
        command=command,
        url=lambda place: f"mysql://{USER}:{PASSWORD}@{place.host}:{place.port}/{DATABASE}",
        answers=answers,
        wall_clock=lambda place: float(_asked(place, "SELECT unix_timestamp(sysdate(6))", tls=tls)),
        prepare=_prepare,
        account=account_for("mysql"),
        environment=clock.environment if clock else no_environment,
    )


def _prepare(place: Place) -> None:
    statements = place.directory / "first.sql"
    statements.write_text(FIRST_STATEMENTS)
    place.run(
        "mariadb-install-db",
        "--no-defaults",
        f"--datadir={place.data}",
        f"--tmpdir={place.data}",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        "--skip-name-resolve",
        f"--extra-file={statements}",
    )
    certificates.write(place)


def _asked(place: Place, question: str, *, tls: bool) -> Any:
    with connection_to(place, tls=tls) as connection, connection.cursor() as cursor:
        cursor.execute(question)
        row = cursor.fetchone()
    assert row is not None
    return row[0]


def _secure(place: Place) -> dict[str, str]:
    return {
        "ssl-ca": str(certificates.authority_file(place)),
        "ssl-cert": str(certificates.certificate_file(place)),
        "ssl-key": str(certificates.key_file(place)),
        "require-secure-transport": "on",
    }
