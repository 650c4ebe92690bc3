"""Every order of a few calls, whatever the network does to them: clean as it is, and broken by planted bugs."""

import pytest

from leased.testing.ledger import PromiseBroken
from leased.testing.simulation.exhaustion import Exhaustion
from leased.testing.simulation.hunting import BUGS
from leased.testing.simulation.planting import Bug, planted

FOUND = {
    "release without comparing tokens",
    "renewal without comparing tokens",
    "renewal revives a lapsed lease",
    "an ended token is granted again",
    "abandon leaves no mark",
    "release of a late claim leaves no mark",
}


def test_no_order_breaks_a_promise() -> None:
    """SAFE1-SAFE8 in every state of three calls; `make simulate` has more time pass."""
    assert Exhaustion(operations=3, passes=2).step_through() > 5_000


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.name in FOUND], ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    """What exhaustion would not notice it would not have excluded."""
    with planted(bug), pytest.raises(PromiseBroken):
        Exhaustion(operations=3, passes=2).step_through()
