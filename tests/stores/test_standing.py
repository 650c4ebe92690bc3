"""Noticing that a server's clock was stepped, and that it gives less than before."""

import logging

import pytest

from leased.errors import StoreNotUsable
from leased.model import Assurance
from leased.observe import Event
from leased.stores._standing import STEP, ServerClock, Standing
from leased.targets import Options
from leased.testing.clocks import MovableClock


def assurance(exclusive: str, *, early_loss: bool = False) -> Assurance:
    return Assurance(exclusive, early_loss, "disk", "the server's clock", "rises", notes=("as it is",))


class Scene:
    """A local clock that the test moves, a server's clock beside it, and the events that were told."""

    def __init__(self, *, require: str | None = None) -> None:
        self.clock = MovableClock(flowing=False)
        self.events: list[Event] = []
        options = Options(self.clock, observer=self.events.append, require=require)
        self.server = ServerClock(self.clock, options, shown="redis://here")
        self.standing = Standing(options, shown="redis://here")
        self.ahead = 1_750_000_000.0

    def exchange(self, *, there: float = 0.001, back: float = 0.001) -> None:
        """Ask the server for its time."""
        asked_at = self.clock.now()
        self.clock.move(there)
        read = self.clock.now() + self.ahead
        self.clock.move(back)
        self.server.read(read, asked_at=asked_at)

    @property
    def steps(self) -> list[float]:
        return [event.data["step"] for event in self.events if event.name == "clock_warning"]


@pytest.mark.parametrize("step", [3600.0, -3600.0, STEP + 0.1, -STEP - 0.1])
def test_a_step_is_told_once_with_its_size(step: float, caplog: pytest.LogCaptureFixture) -> None:
    """A server whose clock was set is reported once, with by how much, as an event and in the log."""
    scene = Scene()
    for _ in range(3):
        scene.exchange()
        scene.clock.move(1.0)
    scene.ahead += step
    with caplog.at_level(logging.WARNING, "leased"):
        for _ in range(3):
            scene.exchange()
    assert scene.steps == [pytest.approx(step, abs=0.2)]
    assert "redis://here: clock warning" in caplog.text


def test_the_first_reading_says_nothing() -> None:
    """The offset of two clocks is nobody's business: only its change is."""
    scene = Scene()
    scene.exchange()
    assert scene.steps == []


def test_slow_answers_in_both_directions_are_no_steps() -> None:
    """C072: delays on the way there or back explain any reading within the exchange."""
    scene = Scene()
    for there, back in [(0.001, 0.001), (5.0, 0.001), (0.001, 5.0), (30.0, 30.0), (0.001, 0.001)]:
        scene.exchange(there=there, back=back)
    assert scene.steps == []


def test_a_clock_that_is_adjusted_slowly_is_no_step() -> None:
    """A time server that slews a clock by 0.05 % reports nothing, not even over a day."""
    scene = Scene()
    for _ in range(24):
        scene.exchange()
        scene.clock.move(3600.0)
        scene.ahead += 1.8
    assert scene.steps == []


def test_another_server_begins_anew() -> None:
    """After a fail-over another clock is read: its difference from the old one is told by nobody's step."""
    scene = Scene()
    scene.exchange()
    scene.server.forget()
    scene.ahead += 60.0
    scene.exchange()
    assert scene.steps == []


def test_a_change_for_the_worse_is_told_and_one_for_the_better_is_not() -> None:
    """S10: what a store gives less than before is an event with both words."""
    scene = Scene()
    for found in ("until-failover", "primary", "until-failover", "volatile", "volatile", "primary"):
        scene.standing.read(assurance(found))
    told = [(event.data["before"], event.data["now"]) for event in scene.events]
    assert told == [("primary", "until-failover"), ("until-failover", "volatile")]
    assert all(event.key == "" and event.data["store"] == "redis://here" for event in scene.events)


def test_where_replicas_were_met_nothing_is_primary_again() -> None:
    """S10: a server without replicas may just have been cut off from them, whatever it gave in between."""
    for between in ("until-failover", "replicated", "unknown", "volatile"):
        scene = Scene()
        scene.standing.read(assurance("until-failover"), followed=True)
        scene.standing.read(assurance(between))
        scene.standing.read(assurance("primary"))
        assert scene.standing.assurance.exclusive == "until-failover"
        assert scene.standing.assurance.early_loss
        scene.standing.read(assurance("replicated"))
        assert scene.standing.assurance.exclusive == "replicated"


def test_losing_leases_early_is_worse() -> None:
    """The same word with leases that can end early is a change for the worse too."""
    scene = Scene()
    scene.standing.read(assurance("primary"))
    scene.standing.read(assurance("primary", early_loss=True))
    assert [event.name for event in scene.events] == ["assurance_changed"]


def test_less_than_required_is_refused_once_it_is_known() -> None:
    """S10: `require` refuses grants from a store that gives less, and does not before the server was asked."""
    scene = Scene(require="primary")
    scene.standing.check()
    scene.standing.read(assurance("primary"))
    scene.standing.check()
    scene.standing.read(assurance("volatile"))
    with pytest.raises(StoreNotUsable, match="'volatile', and 'primary' is required: as it is"):
        scene.standing.check()


def test_the_margin_shown_is_the_callers() -> None:
    """The assurance carries the clock margin that this client uses."""
    options = Options(MovableClock(flowing=False), clock_margin=0.1)
    standing = Standing(options, shown="redis://here")
    assert standing.assurance.clock_margin == 0.1
    standing.read(assurance("primary"))
    assert standing.assurance.clock_margin == 0.1
