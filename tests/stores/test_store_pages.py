"""What the stores' pages tell an administrator to type is enough for every operation, and for nothing else."""

import re
import secrets
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

import leased
from leased.cli import main
from tests.servers import mariadb, valkey
from tests.servers.process import Server

PAGES = Path(__file__).parents[2] / "docs" / "stores"


def live(url: str) -> leased.Assurance:
    """Every operation of a store, and waiting; gives what the store says of itself."""
    with leased.connect(url) as locks, leased.connect(url) as others:
        handle = locks.lock("k", ttl=30, owner="first").acquire()
        assert handle.renew()
        assert [status.key for status in others.list()] == ["k"]
        retaken = others.lock("k", ttl=0.3, owner="first").acquire()
        assert not handle.renew()
        waited = locks.lock("k", ttl=30, wait=20).acquire()
        assert not retaken.release()
        assert locks.restore(waited.dump()).release()
        assert locks.lock("k", lock_delay=0.01).try_acquire() is not None
        assert others.force_release("k")
        locks.abandon("k", secrets.token_urlsafe(32))
        assert not waited.release()
        return locks.assurance


def block_after(page: str, heading: str, language: str) -> str:
    """The first fenced block of that language after a heading, or after a line that begins so."""
    text = (PAGES / page).read_text()
    found = re.search(rf"^{re.escape(heading)}.*?^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.mark.filterwarnings("ignore:a leased handle:ResourceWarning")
def test_the_redis_user_of_the_page_is_enough(private_valkey: Callable[..., Server]) -> None:
    """Least privilege: the user as printed can do everything and read the settings; other names are not his."""
    server = private_valkey(settings={"appendonly": "yes", "appendfsync": "always"})
    words = block_after("redis.md", "### Least privilege", "text").replace(">PASSWORD", ">open-sesame").split()
    with valkey.client_of(server.place) as admin:
        admin.execute_command(*words)
    url = f"redis://leased:open-sesame@{server.host}:{server.port}"
    assurance = live(url)
    assert assurance.exclusive == "primary", assurance
    assert main(["doctor", url], {}) == 0
    with valkey.client_of(server.place) as other:
        other.execute_command("AUTH", "leased", "open-sesame")
        for command in ("SET other 1", "GET other", "FLUSHALL", "CONFIG SET maxmemory 1", "KEYS *"):
            with pytest.raises(Exception, match="NOPERM|permissions|No permissions"):
                other.execute_command(*command.split())


@pytest.mark.filterwarnings("ignore:a leased handle:ResourceWarning")
def test_the_postgres_grant_of_the_page_is_enough(
    private_postgres: Callable[..., Server], capsys: pytest.CaptureFixture[str]
) -> None:
    """Least privilege: with the printed tables and the grant of the page a role without other rights can lock."""
    server = private_postgres()
    assert main(["schema", server.url], {}) == 0
    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute(capsys.readouterr().out.encode())
        admin.execute("CREATE ROLE app LOGIN")
        admin.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        admin.execute(block_after("postgresql.md", "## Set it up", "sql").encode())
    url = server.url.replace("postgres@", "app@")
    assert live(url).known
    with psycopg.connect(url) as role, pytest.raises(psycopg.errors.InsufficientPrivilege):
        role.execute("CREATE TABLE other (n int)")


@pytest.mark.filterwarnings("ignore:a leased handle:ResourceWarning")
def test_the_postgres_grants_for_a_schema_are_enough(
    private_postgres: Callable[..., Server], capsys: pytest.CaptureFixture[str]
) -> None:
    """Least privilege: so they are, in the order of the page, where the tables have a schema of their own."""
    server = private_postgres()
    own = "?leased_table=locks.leased"
    with psycopg.connect(server.url, autocommit=True) as admin:
        admin.execute("CREATE ROLE app LOGIN")
        admin.execute(block_after("postgresql.md", "With `leased_table=SCHEMA.NAME`", "sql").encode())
        assert main(["schema", server.url + own], {}) == 0
        admin.execute(capsys.readouterr().out.encode())
        admin.execute(block_after("postgresql.md", "$ leased schema 'postgresql:", "sql").encode())
    url = server.url.replace("postgres@", "app@") + own
    assert live(url).known
    with psycopg.connect(url.removesuffix(own)) as role, pytest.raises(psycopg.errors.InsufficientPrivilege):
        role.execute("CREATE TABLE locks.other (n int)")


@pytest.mark.filterwarnings("ignore:a leased handle:ResourceWarning")
def test_the_mysql_grants_of_the_page_are_enough(
    private_mariadb: Callable[..., Server], capsys: pytest.CaptureFixture[str]
) -> None:
    """Least privilege: with the printed tables and the grants of the page a user without other rights can lock."""
    server = private_mariadb()
    assert main(["schema", server.url], {}) == 0
    statements = capsys.readouterr().out.split(";\n")
    with mariadb.connection_to(server.place) as admin, admin.cursor() as cursor:
        for statement in filter(str.strip, statements):
            cursor.execute(statement)
        for account in ("'app'@'%'", "'app'@'localhost'"):
            cursor.execute(f"CREATE USER {account} IDENTIFIED BY 'open-sesame'")
            for grant in filter(str.strip, block_after("mysql.md", "## Set it up", "sql").split(";\n")):
                cursor.execute(grant.replace("app.", f"{mariadb.DATABASE}.").replace("'app'@'%'", account))
    url = f"mysql://app:open-sesame@{server.host}:{server.port}/{mariadb.DATABASE}"
    assert live(url).known
