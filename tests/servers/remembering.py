"""One value kept in a server of any kind, to see what becomes of it. It is written and read on new connections."""

from __future__ import annotations

import psycopg

from tests.servers import mariadb
from tests.servers.process import Server
from tests.servers.valkey import client_of


def remember(server: Server, value: str) -> None:
    """Write the value where `remembered` finds it."""
    if server.recipe.kind in {"valkey", "redis"}:
        with client_of(server.place) as client:
            client.set("remembered", value)
    elif server.recipe.kind == "mariadb":
        with mariadb.connection_to(server.place) as maria, maria.cursor() as cursor:
            cursor.execute("CREATE TABLE remembered (value text)")
            cursor.execute("INSERT INTO remembered VALUES (%s)", [value])
    else:
        with psycopg.connect(server.url) as connection:
            connection.execute("CREATE TABLE remembered (value text)")
            connection.execute("INSERT INTO remembered VALUES (%s)", [value])


def remembered(server: Server) -> str | None:
    """The value that was written, if it is still there."""
    if server.recipe.kind in {"valkey", "redis"}:
        with client_of(server.place) as client:
            value = client.get("remembered")
        return None if value is None else str(value)
    if server.recipe.kind == "mariadb":
        with mariadb.connection_to(server.place) as maria, maria.cursor() as cursor:
            if not cursor.execute("SHOW TABLES LIKE 'remembered'"):
                return None
            cursor.execute("SELECT value FROM remembered")
            row = cursor.fetchone()
    else:
        with psycopg.connect(server.url) as connection:
            if connection.execute("SELECT to_regclass('remembered')").fetchone() == (None,):
                return None
            row = connection.execute("SELECT value FROM remembered").fetchone()
    return None if row is None else str(row[0])
