"""How a silence is remembered: briefly, with one caller at a time who looks whether it is over."""

import pytest

from leased.errors import StoreNotUsable, StoreUnavailable
from leased.server import registry_silence
from leased.server.registry_silence import KEPT_FOR, Silence
from tests.server.access.test_limits import Watch

PROBLEM = StoreUnavailable("nobody there", applied=None)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """The clock of silences, moved by hand."""
    watch = Watch()
    monkeypatch.setattr(registry_silence, "monotonic", watch)
    return watch


def is_silent(silence: Silence) -> bool:
    """Whether a caller is told so at once."""
    try:
        silence.begin()
    except StoreUnavailable as told:
        return (told.message, told.applied) == ("nobody there", False)
    return False


def test_who_comes_after_a_silence_need_not_wait_for_it(watch: Watch) -> None:
    """S2: for a second all are told; then one looks, and the others are told until he knows."""
    silence = Silence()
    silence.failed(PROBLEM, began=silence.begin())
    assert is_silent(silence)
    watch.time += KEPT_FOR
    began = silence.begin()
    assert is_silent(silence)
    watch.time += 2.0
    assert is_silent(silence)
    silence.failed(PROBLEM, began=began)
    assert is_silent(silence)
    watch.time += KEPT_FOR
    silence.begin()
    silence.ended()
    assert not is_silent(silence)


def test_one_slow_call_is_no_silence(watch: Watch) -> None:
    """S2: while others are answered, nobody is turned away."""
    silence = Silence()
    began = silence.begin()
    watch.time += 0.5
    silence.begin()
    silence.ended()
    silence.failed(PROBLEM, began=began)
    assert not is_silent(silence)


def test_an_answer_that_helps_nobody_is_an_answer(watch: Watch) -> None:
    """S2: a registry that cannot be used says so to each caller."""
    silence = Silence()
    silence.failed(StoreNotUsable("wrong password"), began=silence.begin())
    assert not is_silent(silence)


def test_who_looked_and_never_came_back_shuts_out_nobody_for_long(watch: Watch) -> None:
    """S2: a caller can be cancelled."""
    silence = Silence()
    silence.failed(PROBLEM, began=silence.begin())
    watch.time += KEPT_FOR
    silence.begin()
    assert is_silent(silence)
    watch.time += 5.0
    assert not is_silent(silence)
