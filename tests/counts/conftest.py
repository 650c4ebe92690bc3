"""What is counted here is what calls cost, and not what is tidied up now and then."""

import random

import pytest


@pytest.fixture(autouse=True)
def no_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store tidies up after so many writes, the first time after a number that it draws: let that be the highest."""
    monkeypatch.setattr(random, "randint", lambda low, high: high)
