"""MariaDB from Debian, run by an account that is not root. It makes no tables."""

from __future__ import annotations

from collections.abc import Mapping

from tests.servers.accounts import account_for
from tests.servers.found import mariadb_program
from tests.servers.process import Place, Recipe, Server

USER, PASSWORD, DATABASE = "leased", "open-sesame", "leased"

FAST = {
    "innodb-buffer-pool-size": "32M",
    "innodb-log-file-size": "16M",
    "innodb-flush-log-at-trx-commit": "2",
    "innodb-doublewrite": "0",
    "innodb-use-native-aio": "0",
    "max-connections": "200",
}
DURABLE = {"innodb-flush-log-at-trx-commit": "1", "innodb-doublewrite": "1", "sync-binlog": "1"}

FIRST_STATEMENTS = f"""
FLUSH PRIVILEGES;
CREATE DATABASE {DATABASE};
CREATE USER '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';
GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'%' WITH GRANT OPTION;
"""


def start(*, settings: Mapping[str, str] | None = None) -> Server:
    """A running server with the user and the database `leased`; settings as options of `mariadbd`.

    As it is, a killed server still has all it confirmed, a machine without power has not; `DURABLE` makes it so.
    """
    return Server(_recipe({**FAST, **(settings or {})}))


def _recipe(settings: Mapping[str, str]) -> Recipe:
    program = mariadb_program()

    def command(place: Place) -> list[str]:
        where = {
            "datadir": str(place.data),
            "bind-address": place.host,
            "port": str(place.port),
            "socket": str(place.data / "socket"),
            "pid-file": str(place.data / "pid"),
        }
        given = [f"--{name}={value}" for name, value in {**settings, **where}.items()]
        return [str(program), "--no-defaults", "--skip-name-resolve", "--skip-log-bin", *given]

    return Recipe("mariadb", command=command, url=url, answers=answers, prepare=prepare, account=account_for("mysql"))


def prepare(place: Place) -> None:
    """Make the system tables, our user and our database."""
    statements = place.directory / "first.sql"
    statements.write_text(FIRST_STATEMENTS)
    place.run(
        "mariadb-install-db",
        "--no-defaults",
        f"--datadir={place.data}",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        "--skip-name-resolve",
        f"--extra-file={statements}",
    )


def url(place: Place) -> str:
    """The address of the database `leased` on this server."""
    return f"mysql://{USER}:{PASSWORD}@{place.host}:{place.port}/{DATABASE}"


def answers(place: Place, _pid: int) -> bool:
    """Whether the server at this place answers, and is ours."""
    import pymysql

    try:
        connection = pymysql.connect(
            host=place.host, port=place.port, user=USER, password=PASSWORD, database=DATABASE, connect_timeout=5
        )
    except pymysql.OperationalError:
        return False
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@datadir")
        return cursor.fetchone() == (f"{place.data}/",)
