"""Ends every rig with its test."""

from collections.abc import Iterator

import pytest

from tests.engine.rig import close_all


@pytest.fixture(autouse=True)
def _end_of_time() -> Iterator[None]:
    """Nothing of one test reaches the next."""
    yield
    close_all()
