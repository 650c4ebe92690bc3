"""`leased schema`: the statements of an SQL store, and a refusal where there are none."""

import secrets

import psycopg
import pytest

from tests.cli.driving import Cli
from tests.servers.process import Server


@pytest.mark.parametrize("url", ["redis://localhost", "memory:", "sqlite:locks.db"])
def test_a_store_without_tables_of_ours_is_told(cli: Cli, url: str) -> None:
    """C2: where nothing has to be made beforehand, it says so and prints nothing."""
    done = cli.run("schema", url)
    assert (done.returncode, done.stdout) == (64, "")
    assert "needs no schema" in done.stderr


def test_a_secret_in_the_url_is_not_shown(cli: Cli) -> None:
    """SEC3: the refusal names the store without its password."""
    done = cli.run("schema", "redis://worker:open-sesame@localhost/0")
    assert done.returncode == 64
    assert "open-sesame" not in done.stderr


def test_the_statements_make_what_the_store_needs(cli: Cli, postgres_server: Server) -> None:
    """S7: what it prints for an SQL store, run by the database's own client, is a schema that the store then uses."""
    name = f"s{secrets.token_hex(4)}"
    url = f"{postgres_server.url}?leased_table={name}"
    statements = cli.run("schema", url).stdout
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(statements.encode())
        assert cli.run("run", "k", "--url", url, "--", "true").returncode == 0
        assert connection.execute(f"SELECT count(*) FROM {name}_record".encode()).fetchone() == (1,)
