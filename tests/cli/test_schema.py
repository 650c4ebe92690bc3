"""`leased schema`: the statements of an SQL store, and a refusal where there are none."""

import pytest

from tests.cli.driving import Cli


@pytest.mark.parametrize("url", ["memory:", "sqlite:locks.db"])
def test_a_store_without_tables_of_ours_is_told(cli: Cli, url: str) -> None:
    """C2: where nothing has to be made beforehand, it says so and prints nothing."""
    done = cli.run("schema", url)
    assert (done.returncode, done.stdout) == (64, "")
    assert "needs no schema" in done.stderr
