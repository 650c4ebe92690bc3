"""One PostgreSQL or MariaDB that keeps every answer, broken from outside and from inside: nothing may be lost."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from random import Random

import psycopg
import pymysql

from nemesis.history import Recorder
from nemesis.scenarios.redis_network import behind
from nemesis.scenarios.redis_server import pause
from nemesis.stage import Scenario, Stage, broken, wait_until
from tests.servers import mariadb, postgres
from tests.servers.process import Server

Breaks = Callable[[Server, Recorder, Random], None]


def _on(start: Callable[[], Server], faults: Sequence[Breaks]) -> Callable[[], AbstractContextManager[Stage]]:
    @contextmanager
    def open_stage() -> Iterator[Stage]:
        with start() as server:
            yield Stage(server.url, [partial(fault, server) for fault in faults])

    return open_stage


def _stall(server: Server, recorder: Recorder, chance: Random) -> None:
    pause(server, recorder, seconds=chance.uniform(0.1, 3.0))


def _crash(server: Server, recorder: Recorder, chance: Random) -> None:
    with broken(recorder, "killed and restarted"):
        server.kill()
        time.sleep(chance.uniform(0.0, 1.0))
        server.start()


def _restart(server: Server, recorder: Recorder, chance: Random) -> None:
    with broken(recorder, "restarted"):
        server.restart()


def _terminate(server: Server, recorder: Recorder, chance: Random) -> None:
    """An administrator ends all sessions."""
    with broken(recorder, "sessions terminated"), psycopg.connect(server.url) as connection:
        connection.execute(f"SELECT pg_terminate_backend(pid) {_SESSIONS}")


def _kill_session(server: Server, recorder: Recorder, chance: Random) -> None:
    """The process of one session is killed, upon which PostgreSQL ends all and recovers."""
    with broken(recorder, "a session's process killed"):
        with psycopg.connect(server.url) as connection:
            found = [int(row[0]) for row in connection.execute(f"SELECT pid {_SESSIONS}").fetchall()]
        if found:
            os.kill(chance.choice(found), signal.SIGKILL)
            wait_until("recovery", lambda: server.recipe.answers(server.place, server.pid))


def _kill_first(server: Server, recorder: Recorder, chance: Random) -> None:
    """Only the first process is killed; the sessions notice, each when it does."""
    with broken(recorder, "first process killed"):
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        os.kill(server.pid, signal.SIGKILL)
        wait_until("the end of all", lambda: not any(Path(f"/proc/{child}").exists() for child in children))
        server.start()


def _lock_rows(server: Server, recorder: Recorder, chance: Random) -> None:
    """Somebody else locks every row, for longer than most leases last."""
    with broken(recorder, "rows locked from outside"), psycopg.connect(server.url) as connection:
        connection.execute("SELECT key FROM leased_record ORDER BY key FOR UPDATE")
        time.sleep(chance.uniform(0.3, 3.0))


def _kill_threads(server: Server, recorder: Recorder, chance: Random) -> None:
    """An administrator ends all sessions of MariaDB."""
    question = "SELECT id FROM information_schema.processlist WHERE user = %s AND id <> connection_id()"
    with (
        broken(recorder, "sessions killed"),
        mariadb.connection_to(server.place) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(question, (mariadb.USER,))
        for (number,) in cursor.fetchall():
            try:
                cursor.execute(f"KILL {int(number)}")
            except pymysql.Error:
                continue  # it has ended by itself


def _lock_rows_there(server: Server, recorder: Recorder, chance: Random) -> None:
    """As `_lock_rows`, in MariaDB."""
    with (
        broken(recorder, "rows locked from outside"),
        mariadb.connection_to(server.place) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("BEGIN")
        cursor.execute("SELECT `key` FROM leased_record FOR UPDATE")
        time.sleep(chance.uniform(0.3, 3.0))
        cursor.execute("ROLLBACK")


_SESSIONS = "FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
_GATES = {"faults": 6, "unknown outcomes": 3}
_NETWORK = {"faults": 10, "unknown outcomes": 10}
_LOSING = "that keeps every answer, while replies are lost, requests come late and connections are cut"


def _postgres() -> Server:
    return postgres.start(settings=postgres.DURABLE)


def _mariadb() -> Server:
    return mariadb.start(settings=mariadb.DURABLE)


SCENARIOS = (
    Scenario(
        "postgres-server",
        "one PostgreSQL that keeps every answer: stopped and killed, whole or in parts, sessions ended, rows locked",
        _on(_postgres, (_stall, _crash, _restart, _terminate, _kill_session, _kill_first, _lock_rows)),
        _GATES,
    ),
    Scenario("postgres-network", f"one PostgreSQL {_LOSING}", behind(_postgres), _NETWORK),
    Scenario(
        "mysql-server",
        "one MariaDB that keeps every answer: stopped, killed and restarted, sessions ended, rows locked",
        _on(_mariadb, (_stall, _crash, _restart, _kill_threads, _lock_rows_there)),
        _GATES,
    ),
    Scenario("mysql-network", f"one MariaDB {_LOSING}", behind(_mariadb), _NETWORK),
)
