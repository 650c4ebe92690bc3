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


def fails(silence: Silence, *, began: float) -> None:
    """A call that began then gets no answer."""
    silence.failed(PROBLEM, began=began)
    silence.over(began)


@pytest.mark.parametrize("seconds", [0.01, 2.0, 300.0])
def test_who_comes_after_a_silence_need_not_wait_for_it(watch: Watch, seconds: float) -> None:
    """S2: for a second all are told; then one looks, and the others are told until he knows, however long a call may
    take (`registry_timeout`): never is a second one sent into the same silence."""
    silence = Silence()
    fails(silence, began=silence.begin())
    assert is_silent(silence)
    watch.time += KEPT_FOR
    began = silence.begin()
    assert is_silent(silence)
    watch.time += seconds
    assert is_silent(silence)
    fails(silence, began=began)
    watch.time += KEPT_FOR / 2
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


def test_who_looked_and_was_cut_off_shuts_out_nobody(watch: Watch) -> None:
    """S2: a caller can be cancelled; the next one looks then. One who began before the silence looks at nothing."""
    silence = Silence()
    early = silence.begin()
    watch.time += 0.1
    fails(silence, began=silence.begin())
    watch.time += KEPT_FOR
    began = silence.begin()
    silence.over(early)
    assert is_silent(silence)
    silence.over(began)
    assert not is_silent(silence)
