"""The contract, checked on every built-in store through both faces."""

from itertools import product

import pytest

from leased import testing
from leased.testing import contract, worlds
from leased.testing.contract import CHECKS, Check, ContractBroken
from leased.testing.runner import run_check, run_checks
from leased.testing.worlds import Async, Blocking, Face, NotRunHere, Place, World
from tests.contract import model_store, real_time
from tests.contract.mutants import MUTANTS, Mutant

FACES: tuple[Face, ...] = (Blocking(), Async())
PLACES = [opener(face) for opener, face in product((worlds.memory, worlds.sqlite), FACES)]
PLACES += [worlds.joined(worlds.sqlite(face)) for face in FACES]
MUST_RUN = {("memory", "blocking"), ("memory", "async"), ("sqlite", "blocking"), ("sqlite", "async")}
MUST_RUN |= {("sqlite-joined", "blocking"), ("sqlite-joined", "async")}


@pytest.fixture(params=PLACES, ids=str)
def place(request: pytest.FixtureRequest) -> Place:
    """A store and a face."""
    found: Place = request.param
    return found


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_contract(check: Check, place: Place) -> None:
    """The store keeps this promise of the contract."""
    result = run_check(check, place)
    if result.error:
        raise result.error
    assert result.outcome == "passed", result.message


@pytest.mark.parametrize("place", [real_time.memory(Async()), real_time.sqlite(Blocking())], ids=str)
def test_the_suite_needs_no_clock_that_stands_still(place: Place) -> None:
    """Real time passing beside a moved one, as on a server, makes no check fail that passes on a clock of its own."""
    report = run_checks(place)
    assert report.ok, [result for result in report.results if not result.ok]
    unknown = {result.name for result in report.results if result.outcome == "not run"}
    assert unknown == {"check_nothing_grows_with_history", "check_one_key_does_not_grow"}


def test_every_store_and_face_is_among_the_places() -> None:
    """No built-in store drops out of the suite unnoticed, on no face."""
    assert {(place.store, place.face.name) for place in PLACES} == MUST_RUN


def test_checks_are_named_and_state_their_property() -> None:
    """Each check has a name of its own and a docstring that states a property, and none is left out of the list."""
    assert len({check.__name__ for check in CHECKS}) == len(CHECKS) > 60
    for check in CHECKS:
        assert check.__doc__
        assert check.__doc__.strip().endswith(".")
    assert contract.CHECKS is CHECKS


async def breaks(world: World) -> None:
    """It never holds."""
    raise ContractBroken(f"no such thing in {world.fresh_key()}")


async def raises(world: World) -> None:
    """It stumbles."""
    await world.store.renew("key", "token", ttl=1.0, number=1, timeout=1 / 0.0)


async def cannot(world: World) -> None:
    """It has nowhere to run."""
    raise NotRunHere("no such place")


async def holds(world: World) -> None:
    """It always holds,
    in two lines."""


def test_results_tell_what_came_of_a_check(place: Place) -> None:
    """A check that passes, breaks, stumbles or cannot run is told apart, with its property and the reason."""
    found = [run_check(check, place) for check in (holds, breaks, raises, cannot)]
    assert [result.outcome for result in found] == ["passed", "failed", "failed", "not run"]
    assert [result.ok for result in found] == [True, False, False, True]
    assert found[0].promise == "It always holds, in two lines."
    assert [result.message for result in found] == [
        "",
        "no such thing in 0001",
        "ZeroDivisionError: float division by zero",
        "no such place",
    ]


def test_a_report_is_good_only_if_something_ran(place: Place) -> None:
    """A report without a single passed check says nothing good, and one failure spoils it."""
    assert run_checks(place, checks=[holds, cannot]).ok
    assert not run_checks(place, checks=[cannot]).ok
    assert not run_checks(place, checks=[holds, breaks]).ok
    assert run_checks(place, checks=[holds]).place == str(place)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.bug)
def test_the_suite_finds_a_planted_bug(mutant: Mutant) -> None:
    """A store with this bug fails a check, so the suite is worth running where no model can be asked."""
    place = model_store.place(Blocking(), mutant.rules())
    assert any(not run_check(check, place).ok for check in CHECKS)


def test_the_testing_package_hands_out_its_names() -> None:
    """Every name that `leased.testing` promises is there, and nothing else is made up."""
    for name in testing.__all__:
        assert getattr(testing, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        getattr(testing, "nothing")  # noqa: B009 - a plain attribute would be refused by type checkers
