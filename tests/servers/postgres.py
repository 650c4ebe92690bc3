"""PostgreSQL, from Debian or from a wheel, run by an account that is not root. It makes no tables."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any, Literal

import psycopg

from tests.servers import certificates
from tests.servers.accounts import account_for
from tests.servers.found import debian_postgres, wheel_postgres
from tests.servers.moving_clock import MovingClock
from tests.servers.process import Place, Recipe, Server, no_environment
from tests.servers.proxy import Listening

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
# A replica whose first is dead may be promoted at once, instead of after the next of its rare attempts to reach it.
REPLICA = {"wal_retrieve_retry_interval": "100ms"}
DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}


def start(
    source: Source = "debian",
    *,
    settings: Mapping[str, str] | None = None,
    replica_of: Listening | None = None,
    slot: str = "",
    tls: bool = False,
    clock: MovingClock | None = None,
) -> Server:
    """A running server with the superuser `postgres`, without password; settings as in `postgresql.conf`.

    A replica is a hot standby, of the same source as the other and not synchronous unless the other is told so; its
    primary keeps a replication slot of this name for it, if one is given. With
    TLS, which the one from the wheel was built without, the URL names the authority, and connections without it are
    refused.
    """
    return Server(
        _recipe(
            source,
            settings={**FAST, **REPLICA, **(settings or {})},
            replica_of=replica_of,
            slot=slot,
            tls=tls,
            clock=clock,
        )
    )


def url_of(place: Place, *, tls: bool = False) -> str:
    """The address of the database `postgres` on this server."""
    secure = f"?sslmode=verify-full&sslrootcert={certificates.authority_file(place)}" if tls else ""
    return f"postgresql://postgres@{place.host}:{place.port}/postgres{secure}"


def _recipe(
    source: Source,
    *,
    settings: Mapping[str, str],
    replica_of: Listening | None,
    slot: str,
    tls: bool,
    clock: MovingClock | None,
) -> Recipe:
    programs = debian_postgres() if source == "debian" else wheel_postgres()

    def prepare(place: Place) -> None:
        data = f"--pgdata={place.data}"
        if replica_of is not None:
            options = ["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--dbname", replica_of.url]
            options += ["--create-slot", "--slot", slot] if slot else []
            place.run(str(programs / "pg_basebackup"), *options, data)
        else:
            options = ["--no-sync", "--no-locale", "--encoding=UTF8", "--auth=trust", "--username=postgres"]
            place.run(str(programs / "initdb"), *options, data)
        if tls:
            certificates.write(place)
            rules = place.data / "pg_hba.conf"
            rules.write_text(rules.read_text().replace("\nhost ", "\nhostssl "))

    def command(place: Place) -> list[str]:
        where = {
            "listen_addresses": place.host,
            "port": str(place.port),
            "unix_socket_directories": str(place.data),
            **(_secure(place) if tls else {}),
        }
        given = [f"--{name}={value}" for name, value in {**settings, **where}.items()]
        return [str(programs / "postgres"), "-D", str(place.data), *given]

    def answers(place: Place, _pid: int) -> bool:
        try:
            return bool(_asked(url_of(place, tls=tls), "SHOW data_directory") == str(place.data))
        except psycopg.OperationalError:
            return False

    return Recipe(
        "postgres",
        command=command,
        url=lambda place: url_of(place, tls=tls),
        answers=answers,
        wall_clock=lambda place: float(
            _asked(url_of(place, tls=tls), "SELECT extract(epoch FROM clock_timestamp())::float8")
        ),
        prepare=prepare,
        account=account_for("postgres"),
        environment=clock.environment if clock else no_environment,
        stop_signal=signal.SIGINT,
        close_signal=signal.SIGQUIT,  # gives its shared memory back, unlike a kill
    )


def _asked(url: str, question: str) -> Any:
    with psycopg.connect(url, connect_timeout=5) as connection:
        row = connection.execute(question.encode()).fetchone()
    assert row is not None
    return row[0]


def _secure(place: Place) -> dict[str, str]:
    return {
        "ssl": "on",
        "ssl_cert_file": str(certificates.certificate_file(place)),
        "ssl_key_file": str(certificates.key_file(place)),
    }
