"""How old messages of a bucket are met, many at once: over numbers alone, and no server."""

from bisect import bisect_left
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leased.stores._nats_walk import Walk


def walked(stream: list[int], *, begin: int = 1, stride: int = 1, limit: int = 10_000) -> tuple[Walk, list[int], int]:
    """A walk over messages with these numbers, in order; what it met, and in how many rounds of questions."""
    walk, met, rounds = Walk(begin, stride=stride), set[int](), 0
    while len(met) < limit and (numbers := walk.numbers(limit - len(met))):
        answers = [stream[place] if (place := bisect_left(stream, one)) < len(stream) else None for one in numbers]
        walk.take(answers)
        met.update(one for one in answers if one is not None)
        rounds += 1
    walk.end()
    return walk, sorted(met), rounds


@given(numbers=st.sets(st.integers(1, 3000), max_size=300), stride=st.integers(1, 500), begin=st.integers(1, 100))
def test_a_walk_meets_every_message_behind_its_beginning(numbers: set[int], stride: int, begin: int) -> None:
    """However they lie, and however wide the lanes are at first."""
    stream = sorted(numbers)
    walk, met, _ = walked(stream, begin=begin, stride=stride)
    assert met == [one for one in stream if one >= begin]
    assert walk.over
    assert walk.reached > max([*met, begin - 1])


@given(numbers=st.sets(st.integers(1, 3000), max_size=300), stride=st.integers(1, 500), limit=st.integers(1, 200))
def test_walks_with_a_limit_leave_nothing_out(numbers: set[int], stride: int, limit: int) -> None:
    """Each meets no more than it may, and goes on where everything before was met: together they meet all."""
    stream = sorted(numbers)
    met, begin, over = set[int](), 1, False
    while not over:
        walk, some, _ = walked(stream, begin=begin, stride=stride, limit=limit)
        assert len(some) <= limit
        assert walk.over or walk.reached > begin
        met.update(some)
        begin, stride, over = walk.reached, walk.stride, walk.over
        assert met.issuperset(one for one in stream if one < begin)
    assert sorted(met) == stream


@pytest.mark.parametrize("apart", [1, 2, 7, 100, 5000])
def test_a_walk_takes_few_rounds_however_far_apart_messages_lie(apart: int) -> None:
    """A round trip for every message is too much: 2000 of them are met in a few dozen."""
    _, met, rounds = walked(list(range(1, 1 + 2000 * apart, apart)))
    assert len(met) == 2000
    assert rounds < 120


def test_what_is_not_answered_is_asked_again() -> None:
    """The first of several questions were answered: only the others are open."""
    walk = Walk(5, stride=1)
    walk.take([5])
    first = walk.numbers(4)
    walk.take(first[:2])
    assert walk.reached == first[2]
    assert walk.numbers(9)[:2] == first[2:]
    assert all(one < other for one, other in pairwise(walk.numbers(9)))


def test_where_nothing_lies_one_question_tells() -> None:
    """M4: what is young costs nothing more."""
    _, met, rounds = walked([])
    assert (met, rounds) == ([], 1)
    assert len(Walk(1, stride=64).numbers(1000)) == 1
