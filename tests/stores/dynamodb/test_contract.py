"""The contract of the store on emulated DynamoDB, for both faces, with and without joining."""

from __future__ import annotations

import pytest

from leased.testing.agreement import agree
from leased.testing.contract import CHECKS, Check
from leased.testing.runner import run_check
from leased.testing.worlds import Blocking, Face, Place, joined
from tests.contract.dynamodb_places import dynamodb
from tests.servers.process import Server


@pytest.fixture(params=["plain", "joined"])
def place(request: pytest.FixtureRequest, face: Face, dynalite_server: Server) -> Place:
    """The store as it is, and behind what joins concurrent calls into batches."""
    plain = dynamodb(face, lambda: dynalite_server)
    return joined(plain) if request.param == "joined" else plain


def passes(check: Check, place: Place) -> None:
    """The store keeps this promise there."""
    result = run_check(check, place)
    if result.error:
        raise result.error
    polls = result.outcome == "not run" and "cannot push" in result.message
    assert result.outcome == "passed" or polls, result.message


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_contract(check: Check, place: Place) -> None:
    """The store keeps this promise of the contract."""
    passes(check, place)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_contract_on_another_server(check: Check, moto_server: Server) -> None:
    """And on another emulation of DynamoDB, which answers a refused write with what stands there."""
    passes(check, dynamodb(Blocking(), lambda: moto_server))


def test_it_agrees_with_the_model(face: Face, dynalite_server: Server) -> None:
    """It answers every history as the model does."""
    agree(dynamodb(face, lambda: dynalite_server), examples=25)
