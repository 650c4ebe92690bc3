"""Every row of the bench runs, and none can vanish. No time is judged here."""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from random import Random

import pytest

import bench.rows
from bench.page import section
from bench.plan import Plan
from bench.rows import ROWS
from tests.servers.fixtures import started

TARGETS = {
    "memory-pair": 4,
    "sqlite-pair": 1,
    "sqlite-many": 3,
    "redis-pair": 2,
    "redis-many": 2,
    "postgres-pair": 4,
    "postgres-many": 3,
    "mysql-pair": 2,
    "etcd-pair": 2,
    "nats-pair": 2,
    "dynamodb-pair": 2,
    "hand-off": 10,
    "herd": 12,
    "idle-wait": 6,
    "renewal": 8,
    "service": 4,
    "service-client": 2,
    "cli-start": 2,
    "import": 3,
}
"""What this release is measured by: the rows, and how many targets each has at least, without any peer."""


def test_no_row_vanishes() -> None:
    """The rows are those that have targets, and no module of a row is left out."""
    assert set(ROWS) == set(TARGETS)
    modules = [import_module(f"bench.rows.{found.name}") for found in iter_modules(bench.rows.__path__)]
    assert {module.run for module in modules if hasattr(module, "run")} == set(ROWS.values())


@pytest.mark.parametrize("row", ROWS)
def test_a_row_runs(row: str, tmp_path: Path) -> None:
    """A row measures all its contenders, compares ours with the floor if it has one, and judges every target."""
    result = started(ROWS[row], Plan(tmp_path, scale=0.01, peers=None, chance=Random(1)))
    assert result.row == row
    assert len(result.verdicts) >= TARGETS[row]
    for table in result.tables:
        with_floor = any(line.role == "floor" for line in table.lines)
        ours = [line for line in table.lines if line.role == "leased"]
        assert ours, table.title
        for line in ours:
            assert 0 <= line.least <= line.median <= line.most, f"{table.title}: {line}"
            assert (line.to_floor is not None) is with_floor
    text = section(result)
    assert all(verdict.target in text for verdict in result.verdicts)
