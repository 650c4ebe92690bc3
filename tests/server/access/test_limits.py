"""Budgets: never more than promised in any window, exact advice when to come again, bounded memory."""

import math
import tracemalloc
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leased.errors import InvalidRequest
from leased.server.limits import Budget, Meter


class Watch:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


BUDGETS = st.builds(
    Budget,
    uses=st.integers(1, 20),
    seconds=st.floats(0.01, 3600, allow_nan=False),
    burst=st.integers(0, 30),
)
STEPS = st.lists(
    st.tuples(
        st.one_of(st.just(0.0), st.floats(0, 0.5), st.floats(0, 2000)),
        st.sampled_from("abcdefgh"),
        st.integers(1, 6),
        st.sampled_from(["take", "take", "take", "spend", "undo"]),
    ),
    max_size=60,
)


@given(BUDGETS, STEPS, st.integers(1, 9))
def test_no_window_holds_more_than_burst_and_rate(
    budget: Budget, steps: list[tuple[float, str, int, str]], room: int
) -> None:
    """SEC6, issue 4: in any span of t seconds a name gets at most burst + rate * t, also when names share a budget."""
    watch = Watch()
    meter = Meter(budget, now=watch, most_names=room)
    let_in: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for pause, name, count, what in steps:
        watch.time += pause
        if what == "spend":
            meter.spend(name, count)
        elif meter.take(name, count) == 0.0:
            if what == "undo":
                meter.give_back(name, count)
            else:
                let_in[name].append((watch.time, count))
        assert len(meter) <= room + 1
    for uses in let_in.values():
        for first, (begin, _) in enumerate(uses):
            total = 0
            for end, count in uses[first:]:
                total += count
                assert total <= budget.at_once + (end - begin) * budget.uses / budget.seconds + 1e-3


@given(BUDGETS, STEPS)
def test_the_advice_when_to_come_again_is_exact(budget: Budget, steps: list[tuple[float, str, int, str]]) -> None:
    """R2: after `retryAfter` the same request passes; before it, it would not have."""
    watch = Watch()
    meter = Meter(budget, now=watch)
    for pause, name, count, _ in steps:
        watch.time += pause
        late = meter.take(name, count)
        if late == math.inf:
            assert count > budget.at_once
        elif late > 0:
            assert late == round(late, 6)  # whole seconds stay whole
            here = watch.time
            watch.time = here + late - 5e-6
            assert watch.time <= here or meter.take(name, count) > 0
            watch.time = here + late
            assert meter.take(name, count) == 0.0


@given(BUDGETS, st.integers(1, 5))
def test_refusals_use_nothing(budget: Budget, tries: int) -> None:
    """R2: who asks in vain does not push his own turn away."""
    watch = Watch()
    meter = Meter(budget, now=watch)
    assert meter.take("ada", budget.at_once) == 0.0
    assert len({meter.take("ada") for _ in range(tries)}) == 1


def test_what_is_never_refused_leaves_a_debt_of_one_budget_at_most() -> None:
    """R2: releases are counted, but however many they are, the name is heard again after the usual time."""
    watch = Watch()
    meter = Meter(Budget(60, 60.0), now=watch)
    meter.spend("ada", 10_000)
    assert meter.take("ada") == pytest.approx(1.0, abs=1e-4)
    assert meter.take("bob") == 0.0


def test_names_have_budgets_of_their_own() -> None:
    """R1: one who has used his up takes nothing from another."""
    meter = Meter(Budget(2, 60.0), now=Watch())
    assert [meter.take("ada") == 0.0 for _ in range(3)] == [True, True, False]
    assert [meter.take("bob") == 0.0 for _ in range(3)] == [True, True, False]


def test_a_burst_can_be_smaller_than_the_budget() -> None:
    """R1: `burst` come at once, the rest at the steady rate."""
    watch = Watch()
    meter = Meter(Budget(600, 60.0, burst=2), now=watch)
    assert [meter.take("ada") == 0.0 for _ in range(3)] == [True, True, False]
    watch.time += 0.1
    assert [meter.take("ada") == 0.0 for _ in range(2)] == [True, False]


def test_memory_is_bounded_and_given_back() -> None:
    """SEC6, C180: of a million names only those that used their budget lately are known, and never more than fit."""
    watch = Watch()
    meter = Meter(Budget(10, 10.0), now=watch, most_names=1000)
    tracemalloc.start()
    for number in range(100_000):
        meter.take(f"name {number}")
        watch.time += 1e-6
    assert len(meter) <= 1001
    assert tracemalloc.get_traced_memory()[0] < 1_000_000
    tracemalloc.stop()
    watch.time += 60
    for number in range(100):
        meter.take(f"new {number}")
    assert len(meter) <= 100


class Exact:
    """The budget of one name as the spec has it, reckoned apart: `burst` at first, and `rate` a second up to that."""

    def __init__(self, budget: Budget, *, at: Fraction) -> None:
        self.left = Fraction(budget.at_once)
        self._most = budget.at_once
        self._rate = Fraction(budget.uses) / Fraction(budget.seconds)
        self._at = at

    def take(self, now: Fraction) -> bool:
        self.left = min(self.left + (now - self._at) * self._rate, Fraction(self._most))
        self._at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


def test_a_million_names_neither_fill_the_memory_nor_touch_the_budget_of_one() -> None:
    """SEC6, C180, R1: while a million others come, one after the other, one member gets exactly burst + rate * t: every
    answer is the one of his budget alone. What is remembered are those in use and half as many again."""
    watch = Watch()
    budget = Budget(600, 3600.0)
    meter = Meter(budget, now=watch)
    exact = Exact(budget, at=Fraction(1000))
    most = granted = refused = 0
    for number in range(1_000_000):
        watch.time = 1000.0 + number / 1024  # an instant that both reckon with exactly
        meter.take(f"name {number}")
        if number % 997 == 0:
            most = max(most, len(meter))
            passed = meter.take("ada") == 0.0
            assert passed == exact.take(Fraction(watch.time)), number
            granted, refused = granted + passed, refused + (not passed)
    in_use = 6 * 1024  # each uses his budget once, which is full again after 6 s
    assert most <= 1.5 * in_use + 100
    assert granted > budget.at_once
    assert refused > 100


class Counted(OrderedDict[str, int]):
    """The names of a meter; it counts each step at them."""

    steps = 0

    def _step(self) -> None:
        self.steps += 1

    def __setitem__(self, name: str, full_at: int) -> None:
        self._step()
        super().__setitem__(name, full_at)

    def popitem(self, last: bool = True) -> tuple[str, int]:
        self._step()
        return super().popitem(last)

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("nobody goes through all names")


@pytest.mark.parametrize("most_names", [100, 10_000, 50_000])
def test_a_use_costs_the_same_however_many_names_there_are(most_names: int) -> None:
    """SEC6: by the steps at names of each use, whether it passes, finds no room, or comes after all others are full."""
    watch = Watch()
    meter = Meter(Budget(2, 3600.0), now=watch, most_names=most_names)
    meter._full_at = names = Counted()
    worst = 0
    for number in range(3 * most_names):
        if number == 2 * most_names:
            watch.time += 3600.0
        before = names.steps
        meter.take(f"name {number}")
        worst = max(worst, names.steps - before)
        assert len(meter) <= most_names + 1
    assert worst <= 80


def test_one_who_has_used_much_keeps_nobody_else_here() -> None:
    """SEC6, R1: a name that is not full for an hour leaves room for others: each has a budget of his own, and those
    who are full are forgotten meanwhile."""
    watch = Watch()
    meter = Meter(Budget(600, 3600.0), now=watch, most_names=1_000)
    assert meter.take("busy", 600) == 0.0
    for number in range(30_000):
        watch.time += 0.1
        assert meter.take(f"name {number}") == 0.0
        assert len(meter) <= 100


def test_room_is_made_for_one_who_would_be_refused_without() -> None:
    """R1: where the shared budget is used up, a newcomer still finds the room of those who are full by now."""
    watch = Watch()
    meter = Meter(Budget(3, 30.0), now=watch, most_names=2)
    assert [meter.take(name) for name in ("ada", "bob")] == [0.0, 0.0]
    assert [meter.take("eve") == 0.0 for _ in range(4)] == [True, True, True, False]
    watch.time += 10.0
    assert meter.take("ida", 2) > 0.0
    assert len(meter) == 1


def test_newcomers_without_room_harm_nobody_who_is_known() -> None:
    """SEC6: a flood of names shares one budget; those that were there before keep theirs."""
    meter = Meter(Budget(5, 60.0), now=Watch(), most_names=2)
    meter.take("ada")
    meter.take("bob")
    assert sum(meter.take(f"flood {number}") == 0.0 for number in range(100)) == 5
    assert [meter.take("ada") == 0.0 for _ in range(5)] == [True] * 4 + [False]


def test_who_gets_room_later_has_used_what_he_shared() -> None:
    """SEC6: coming from the shared budget to one of his own, nobody gets a second burst."""
    watch = Watch()
    meter = Meter(Budget(2, 10.0), now=watch, most_names=2)
    assert [meter.take(name) for name in ("ada", "eve")] == [0.0, 0.0]
    assert [meter.take("bob") == 0.0 for _ in range(3)] == [True, True, False]
    watch.time += 6
    assert [meter.take("bob") == 0.0 for _ in range(3)] == [True, False, False]


@pytest.mark.parametrize(
    "wrong", [(0, 60.0, 0), (-1, 60.0, 0), (1, 0.0, 0), (1, math.inf, 0), (1, math.nan, 0), (1, 1.0, -1)]
)
def test_a_budget_that_makes_no_sense_is_refused(wrong: tuple[int, float, int]) -> None:
    """R1: limits are checked when they are set."""
    with pytest.raises(InvalidRequest):
        Budget(*wrong)


def test_what_is_given_back_can_be_used_again() -> None:
    """R3: undoing a `take` gives back as many uses as it took, and no others; of a name that is not known, nothing."""
    watch = Watch()
    meter = Meter(Budget(10, 10.0), now=watch)
    assert meter.take("a", 7) == 0.0
    assert meter.take("a", 3) == 0.0
    meter.give_back("a", 3)
    assert meter.take("a", 4) > 0.0
    assert meter.take("a", 3) == 0.0
    meter.give_back("stranger", 5)
    assert meter.take("stranger", 11) == math.inf
    assert meter.take("stranger", 10) == 0.0
    assert meter.take("a") > 0.0
