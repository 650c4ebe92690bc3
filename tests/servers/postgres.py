"""PostgreSQL, from Debian or from a wheel, run by an account that is not root. It makes no tables."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Literal

from tests.servers.accounts import account_for
from tests.servers.found import debian_postgres, wheel_postgres
from tests.servers.process import Place, Recipe, Server

Source = Literal["debian", "wheel"]

# A fresh database costs little this way, and a killed server still has all it confirmed: only a machine that loses
# power would not.
FAST = {
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "200",
    "dynamic_shared_memory_type": "mmap",  # within the data, so that nothing of it is left after a kill
}


def start(source: Source = "debian", *, settings: Mapping[str, str] | None = None) -> Server:
    """A running server with the superuser `postgres`, without password; settings as in `postgresql.conf`."""
    return Server(_recipe(source, settings={**FAST, **(settings or {})}))


def _recipe(source: Source, *, settings: Mapping[str, str]) -> Recipe:
    programs = debian_postgres() if source == "debian" else wheel_postgres()
    account = account_for("postgres")

    def prepare(place: Place) -> None:
        options = ["--no-sync", "--no-locale", "--encoding=UTF8", "--auth=trust", "--username=postgres"]
        place.run(str(programs / "initdb"), *options, f"--pgdata={place.data}")

    def command(place: Place) -> list[str]:
        where = {
            "listen_addresses": place.host,
            "port": str(place.port),
            "unix_socket_directories": str(place.data),
        }
        given = [f"--{name}={value}" for name, value in {**settings, **where}.items()]
        return [str(programs / "postgres"), "-D", str(place.data), *given]

    return Recipe(
        "postgres",
        command=command,
        url=url,
        answers=answers,
        prepare=prepare,
        account=account,
        stop_signal=signal.SIGINT,
        close_signal=signal.SIGQUIT,  # gives its shared memory back, unlike a kill
    )


def url(place: Place) -> str:
    """The address of the database `postgres` on this server."""
    return f"postgresql://postgres@{place.host}:{place.port}/postgres"


def answers(place: Place, _pid: int) -> bool:
    """Whether the server at this place answers, and is ours."""
    import psycopg

    try:
        with psycopg.connect(url(place), connect_timeout=5) as connection:
            row = connection.execute("SHOW data_directory").fetchone()
    except psycopg.OperationalError:
        return False
    return row == (str(place.data),)
