"""A Django project: where its settings put the locks, and commands under one, on PostgreSQL, MariaDB and SQLite."""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psycopg.conninfo
import pytest

import leased
from leased.contrib.django._options import url_parameters
from leased.errors import InvalidRequest
from leased.stores._mysql_place import Tls, place
from tests.servers.process import Server

ROOT = Path(__file__).parents[2]
_SQLITE = "django.db.backends.sqlite3"


def environment(databases: dict[str, Any], **leased_settings: Any) -> dict[str, str]:
    """What the project's settings read."""
    given = {"TEST_LEASED": json.dumps(leased_settings)} if leased_settings else {}
    databases_given = {
        "TEST_DATABASES": json.dumps(databases),
        "DJANGO_SETTINGS_MODULE": "tests.contrib.django_settings",
    }
    return {**os.environ, **databases_given, **given}


def manage(environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    """A management command, running."""
    command = [sys.executable, "-W", "error", "-m", "django", *arguments]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=ROOT, env=environment, text=True, **pipes)


def url_with(databases: dict[str, Any], **leased_settings: Any) -> str:
    """What `store_url` makes of these settings, or the error that it raises."""
    program = (
        "import django; django.setup()\n"
        "from leased.contrib.django import store_url\n"
        "from leased.errors import InvalidRequest\n"
        "try:\n    print(store_url())\nexcept InvalidRequest as error:\n    print('refused:', error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment(databases, **leased_settings),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.strip()


def postgres(server: Server) -> dict[str, Any]:
    """An entry of `DATABASES` for a server of the test run."""
    read = psycopg.conninfo.conninfo_to_dict(server.url)
    names = {"NAME": "dbname", "USER": "user", "HOST": "host", "PORT": "port"}
    return {"ENGINE": "django.db.backends.postgresql", **{name: str(read[key]) for name, key in names.items()}}


def mariadb(server: Server) -> dict[str, Any]:
    """As `postgres`."""
    where = place(server.url)
    return {
        "ENGINE": "django.db.backends.mysql",
        "NAME": where.database,
        "USER": where.user,
        "PASSWORD": where.password or "",
        "HOST": where.host,
        "PORT": str(where.port),
    }


def test_a_command_runs_in_one_place_at_a_time(postgres_server: Server, mariadb_server: Server, tmp_path: Path) -> None:
    """P4: while it runs under the lock of the project's database, a second one is refused with 75 and the holder, or
    skipped with 0; its own failure is its exit status; and the key is free afterwards."""
    databases = [postgres(postgres_server), mariadb(mariadb_server), {"ENGINE": _SQLITE, "NAME": str(tmp_path / "db")}]
    for database in databases:
        where = environment({"default": database})
        key = f"django:{tmp_path.name}"
        first = manage(where, "locked", key, "work", "--fail")
        assert first.stdout is not None
        assert first.stdout.readline().startswith("runs 1")
        second = manage(where, "locked", key, "work")
        _, told = second.communicate(timeout=60)
        assert (second.returncode, f"'{key}' is held by" in told) == (75, True), told
        third = manage(where, "locked", "--skip", key, "work")
        _, told = third.communicate(timeout=60)
        assert (third.returncode, "skipped" in told) == (0, True), told
        _, told = first.communicate("end\n", timeout=60)
        assert (first.returncode, "the work failed" in told) == (3, True), told
        fourth = manage(where, "locked", key, "work")
        assert fourth.communicate("end\n", timeout=60)[0].startswith("runs 1")
        assert fourth.returncode == 0


def test_a_command_that_is_killed_keeps_the_key_for_its_ttl(postgres_server: Server, tmp_path: Path) -> None:
    """P4, M1: `kill -9` in the middle, on PostgreSQL: the next one waits for it and runs, by a higher token."""
    where = environment({"default": postgres(postgres_server)})
    key = f"django:killed:{tmp_path.name}"
    first = manage(where, "locked", "--ttl", "2s", key, "work")
    assert first.stdout is not None
    before = first.stdout.readline().split()
    assert before[0] == "runs"
    first.kill()
    first.communicate(timeout=60)
    second = manage(where, "locked", "--wait", "50s", key, "work")
    told, problem = second.communicate("end\n", timeout=90)
    assert second.returncode == 0, problem
    assert int(told.split()[1]) > int(before[1])


def test_a_lost_lease_and_a_store_that_is_away(tmp_path: Path) -> None:
    """The exit statuses are those of `leased run`: 76 and 69; nothing runs without the lease."""
    store = f"sqlite:{tmp_path / 'locks.db'}"
    work = manage(environment({}, STORE=store), "locked", "--ttl", "1s", "key", "work")
    assert work.stdout is not None
    assert work.stdout.readline().startswith("runs")
    with leased.connect(store) as locks:
        assert locks.force_release("key")
        with locks.lock("key", ttl=60):
            _, told = work.communicate("end\n", timeout=60)
    assert (work.returncode, "'key' is over" in told) == (76, True), told
    away = manage(environment({}, STORE="redis://127.0.0.1:1", OPTIONS={"timeout": 0.5}), "locked", "key", "work")
    out, told = away.communicate(timeout=60)
    assert (away.returncode, out) == (69, ""), told


def test_where_the_locks_are(tmp_path: Path) -> None:
    """P4: by default in the default database; or in another one, or in a store of their own; secrets are escaped."""
    postgresql = {"ENGINE": "django.db.backends.postgresql", "NAME": "a/b", "USER": "me@x", "PASSWORD": "p:/?#%"}
    mysql = {"ENGINE": "django.db.backends.mysql", "NAME": "app", "HOST": "/run/mysql.sock", "USER": "me"}
    file = {"ENGINE": _SQLITE, "NAME": str(tmp_path / "db.sqlite3")}
    found = url_with(
        {"default": postgresql | {"HOST": "db", "PORT": "5433", "OPTIONS": {"sslmode": "require", "x": 1}}}
    )
    assert found == "postgresql://me%40x:p%3A%2F%3F%23%25@db:5433/a%2Fb?sslmode=require"
    assert url_with({"default": postgresql | {"HOST": "/run/pg"}}).endswith("@/a%2Fb?host=%2Frun%2Fpg")
    assert url_with({"default": file}) == f"sqlite:{tmp_path}/db.sqlite3.locks"
    other = url_with({"default": file, "locks": mysql}, DATABASE="locks")
    assert other == "mysql://me@localhost/app?unix_socket=%2Frun%2Fmysql.sock"
    secured = mysql | {"HOST": "db", "OPTIONS": {"ssl": {"ca": "/ca.pem"}}}
    assert url_with({"default": secured}) == "mysql://me@db/app?ssl=true&ssl_ca=%2Fca.pem&ssl_verify=true"
    assert url_with({"default": file}, STORE="redis://localhost/3") == "redis://localhost/3"


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        ({"sslmode": "verify-full", "sslcrl": "/a b", "sslsni": True}, "sslmode=verify-full&sslcrl=%2Fa%20b&sslsni=1"),
        ({"channel_binding": "require", "isolation_level": 2}, "channel_binding=require"),
        ({"service": "app", "passfile": "/p", "options": "-c a=b"}, "service=app&passfile=%2Fp&options=-c%20a%3Db"),
        ({"sslcert": None, "pool": True}, ""),
    ],
)
def test_how_postgresql_is_secured_is_carried_over(options: dict[str, Any], parameters: str) -> None:
    """What the options say of TLS and of credentials reaches libpq; what else Django does with them does not."""
    found = url_parameters("postgresql", options, alias="default")
    assert urlencode(found, quote_via=quote) == parameters
    assert psycopg.conninfo.conninfo_to_dict(f"postgresql:///x?{parameters}") == {**found, "dbname": "x"}


@pytest.mark.parametrize(
    ("options", "tls"),
    [
        ({"charset": "utf8mb4", "init_command": "SET a = 1"}, None),
        ({"ssl": {}}, None),
        ({"ssl_mode": "DISABLED", "ssl": {"ca": "/ca"}}, None),
        ({"ssl_disabled": True}, None),
        ({"ssl": {"ca": "/ca"}}, Tls(True, authorities="/ca")),
        ({"ssl": {"ca": "/ca", "check_hostname": False}}, Tls(True, authorities="/ca")),
        ({"ssl": {"ca": "/ca", "verify_mode": ssl.CERT_NONE}}, Tls(False, authorities="/ca")),
        ({"ssl": {"verify_mode": ssl.CERT_REQUIRED}}, Tls(True)),
        ({"ssl": {"verify_mode": "none"}}, Tls(False)),
        ({"ssl": {"cert": "/c", "key": "/k"}}, Tls(False, certificate="/c", key="/k")),
        ({"ssl_mode": "REQUIRED"}, Tls(False)),
        ({"ssl_mode": "REQUIRED", "ssl": {"ca": "/ca"}}, Tls(True, authorities="/ca")),
        ({"ssl_mode": "VERIFY_CA", "ssl": {"ca": "/ca"}}, Tls(True, authorities="/ca")),
        ({"ssl_mode": "verify_identity"}, Tls(True)),
        (
            {"ssl_ca": "/ca", "ssl_cert": "/c", "ssl_key": "/k"},
            Tls(True, authorities="/ca", certificate="/c", key="/k"),
        ),
        ({"ssl_ca": "/ca", "ssl_verify_cert": False}, Tls(False, authorities="/ca")),
        ({"ssl_verify_identity": True}, Tls(True)),
    ],
)
def test_tls_of_mysql_is_carried_over(options: dict[str, Any], tls: Tls | None) -> None:
    """The store speaks TLS where the project does, and verifies no less."""
    found = url_parameters("mysql", options, alias="default")
    assert place(f"mysql://me@db/x?{urlencode(found, quote_via=quote)}").tls == tls


@pytest.mark.parametrize(
    ("scheme", "options", "named"),
    [
        ("mysql", {"ssl_mode": "PREFERRED"}, "ssl_mode=PREFERRED"),
        ("mysql", {"ssl": True}, "ssl"),
        ("mysql", {"ssl": {"ca": "/ca", "cipher": "x"}}, "ssl['cipher']"),
        ("mysql", {"ssl": {"verify_mode": "perhaps"}}, "ssl['verify_mode']"),
        ("mysql", {"ssl_key_password": "secret"}, "ssl_key_password"),
        ("mysql", {"sslmode": "require"}, "sslmode"),
        ("mysql", {"read_default_file": "/etc/my.cnf"}, "read_default_file"),
        ("mysql", {"service": "app"}, "service"),
        ("postgresql", {"sslmode": ["require"]}, "sslmode"),
    ],
)
def test_what_cannot_be_secured_alike_is_refused(scheme: str, options: dict[str, Any], named: str) -> None:
    """By the name of the option, without its value where that may be secret, and with what to do instead."""
    with pytest.raises(InvalidRequest, match=rf"the option {re.escape(named)} of the database 'other'") as caught:
        url_parameters(scheme, options, alias="other")
    assert "STORE" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("databases", "given", "told"),
    [
        ({}, {}, "no database 'default'"),
        ({"default": {"ENGINE": _SQLITE, "NAME": ":memory:"}}, {}, "is in memory"),
        ({"default": {"ENGINE": "django.db.backends.oracle", "NAME": "x"}}, {}, "cannot keep locks"),
        ({"default": {"ENGINE": "django.db.backends.mysql", "NAME": "x", "OPTIONS": {"ssl_x": 1}}}, {}, "option ssl_x"),
        ({}, {"STORE": "memory:", "DATABASE": "default"}, "names both STORE and DATABASE"),
        ({}, {"URL": "memory:"}, "does not know URL"),
    ],
)
def test_settings_that_cannot_work(databases: dict[str, Any], given: dict[str, Any], told: str) -> None:
    """Each is refused with what it takes instead."""
    answer = url_with(databases, **given)
    assert answer.startswith("refused:")
    assert told in answer
    assert "LEASED" in answer or "STORE" in answer


@pytest.mark.parametrize("debug", [False, True])
def test_guarded_writes_by_cursors_of_django(tmp_path: Path, debug: bool) -> None:
    """F1, P4: the cursors that a project has, with DEBUG and without, take statements as Django writes them."""
    program = (
        "import django; django.setup()\n"
        "from django.db import connection, transaction\n"
        "from leased.errors import StaleFencingToken\n"
        "from leased.fences.sql import GuardTable, guarded_update\n"
        f"connection.force_debug_cursor = {debug}\n"
        "guards = GuardTable()\n"
        "asked = dict(values={'total': 1}, where={'day': 'monday'}, database='sqlite')\n"
        "with transaction.atomic(), connection.cursor() as cursor:\n"
        "    cursor.execute(guards.schema('sqlite'))\n"
        "    cursor.execute('CREATE TABLE report (day TEXT PRIMARY KEY, total INTEGER, fencing_token BIGINT)')\n"
        "    cursor.execute(\"INSERT INTO report VALUES ('monday', 0, 5)\")\n"
        "    print(guarded_update(cursor, 'report', fencing_token=7, **asked))\n"
        "    guards.check(cursor, 'thing', fencing_token=7, database='sqlite')\n"
        "    for refused in (\n"
        "        lambda: guarded_update(cursor, 'report', fencing_token=6, **asked),\n"
        "        lambda: guards.check(cursor, 'thing', fencing_token=6, database='sqlite'),\n"
        "    ):\n"
        "        try:\n            refused()\n"
        "        except StaleFencingToken as error:\n            print(error.seen)\n"
    )
    where = environment({"default": {"ENGINE": _SQLITE, "NAME": str(tmp_path / "db")}})
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=where, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["True", "7", "7"], done.stderr
