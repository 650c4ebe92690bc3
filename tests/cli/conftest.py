"""The command in a directory of its own, for every test here."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.driving import Cli


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    """The command with a home and a store of its own; whatever it started is ended afterwards."""
    cli = Cli(tmp_path)
    yield cli
    cli.close()
