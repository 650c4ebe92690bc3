"""PgBouncer from Debian in front of a PostgreSQL, pooling by transaction. It stores nothing."""

from __future__ import annotations

import psycopg

from tests.servers import postgres
from tests.servers.accounts import account_for
from tests.servers.found import pgbouncer_program
from tests.servers.process import Place, Recipe, Server


def start(server: Server, *, pool_size: int = 2, pool_mode: str = "transaction") -> Server:
    """A running pooler with this many connections to the server, for any number of clients."""
    program = pgbouncer_program()

    def prepare(place: Place) -> None:
        (place.data / "users").write_text('"postgres" ""\n')
        settings = {
            "listen_addr": place.host,
            "listen_port": place.port,
            "unix_socket_dir": "",
            "auth_type": "trust",
            "auth_file": place.data / "users",
            "admin_users": "postgres",
            "pool_mode": pool_mode,
            "default_pool_size": pool_size,
            "max_client_conn": 500,
            "pidfile": place.data / "pid",
        }
        lines = [f"{name} = {value}" for name, value in settings.items()]
        database = f"postgres = host={server.host} port={server.port} dbname=postgres"
        (place.data / "settings.ini").write_text("\n".join(["[databases]", database, "[pgbouncer]", *lines]) + "\n")

    def answers(place: Place, _pid: int) -> bool:
        try:
            with psycopg.connect(_console(place), autocommit=True, connect_timeout=5) as connection:
                found = {str(row[0]): str(row[1]) for row in connection.execute("SHOW CONFIG")}
        except psycopg.OperationalError:
            return False
        return found["pidfile"] == str(place.data / "pid")

    return Server(
        Recipe(
            "pgbouncer",
            command=lambda place: [str(program), str(place.data / "settings.ini")],
            url=postgres.url_of,
            answers=answers,
            wall_clock=lambda _: server.wall_clock(),
            prepare=prepare,
            account=account_for("postgres"),
        )
    )


def _console(place: Place) -> str:
    return f"postgresql://postgres@{place.host}:{place.port}/pgbouncer"
