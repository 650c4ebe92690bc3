"""Every row of the bench runs. No time is judged here."""

from pathlib import Path
from random import Random

import pytest

from bench.page import section
from bench.plan import Plan
from bench.rows import ROWS


@pytest.mark.parametrize("row", ROWS)
def test_a_row_runs(row: str, tmp_path: Path) -> None:
    """A row measures all its contenders, compares ours with the floor if it has one, and judges every target."""
    result = ROWS[row](Plan(tmp_path, scale=0.01, peers=None, chance=Random(1)))
    assert result.row == row
    assert result.verdicts
    for table in result.tables:
        with_floor = any(line.role == "floor" for line in table.lines)
        ours = [line for line in table.lines if line.role == "leased"]
        assert ours, table.title
        for line in ours:
            assert 0 <= line.least <= line.median <= line.most, f"{table.title}: {line}"
            assert (line.to_floor is not None) is with_floor
    text = section(result)
    assert all(verdict.target in text for verdict in result.verdicts)
