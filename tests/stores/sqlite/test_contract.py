"""The contract of stores with the SQLite library that this process would not choose, so in the other journal mode."""

import pytest

from leased.stores import _sqlite_driver, sqlite
from leased.testing import worlds
from leased.testing.contract import CHECKS, Check
from leased.testing.runner import run_check
from leased.testing.worlds import Async, Blocking, Face
from tests.stores.sqlite.conftest import libraries

(OTHER,) = (library for library in libraries() if library.name != _sqlite_driver.driver().name)
FACES: tuple[Face, ...] = (Blocking(), Async())


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.name)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_contract(check: Check, face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store keeps this promise of the contract."""
    for module in (_sqlite_driver, sqlite):
        monkeypatch.setattr(module, "driver", lambda: OTHER)
    result = run_check(check, worlds.sqlite(face))
    if result.error:
        raise result.error
    assert result.outcome == "passed", result.message
