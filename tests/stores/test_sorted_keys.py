"""The keys of the memory store in their order, whatever comes and goes between two pages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leased.stores import _sorted_keys
from leased.stores._sorted_keys import SortedKeys

KEYS = st.text("abc", min_size=1, max_size=3)
CHANGES = st.lists(st.tuples(st.sampled_from(["come", "go", "look", "tend"]), KEYS), max_size=60)


def come(records: dict[str, None], keys: SortedKeys, key: str) -> None:
    """As the store does it."""
    if key not in records and keys.used:
        keys.add(key)
    records[key] = None


@pytest.mark.parametrize("many", [0, 3, 10_000])
@pytest.mark.parametrize("block", [1, 2, 500])
@given(changes=CHANGES, prefix=st.text("abc", max_size=2), after=st.text("abc", max_size=3))
def test_a_page_has_what_is_there_in_order_and_once(
    block: int, many: int, changes: list[tuple[str, str]], prefix: str, after: str
) -> None:
    """L7: after any changes, with pages in between, a page is the sorted keys with the prefix above `after`."""
    records: dict[str, None] = {}
    keys = SortedKeys(records)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_sorted_keys, "_BLOCK", block)
        patch.setattr(_sorted_keys, "_SLACK", 5 * block)
        patch.setattr(_sorted_keys, "_MANY", many)
        for change, key in changes:
            if change == "come":
                come(records, keys, key)
            elif change == "go":
                records.pop(key, None)
            elif change == "tend":
                keys.tend()
            else:
                list(keys.page(key, after=""))
        wanted = sorted(key for key in records if key.startswith(prefix) and key > after)
        assert list(keys.page(prefix, after=after)) == wanted


def test_what_is_noted_is_bounded_by_what_is_held() -> None:
    """Who asked for one page, and never again, costs no more than a list of the keys there were then."""
    records: dict[str, None] = {}
    keys = SortedKeys(records)
    assert not keys.used
    come(records, keys, "first")
    assert list(keys.page("", after="")) == ["first"]
    for number in range(3 * _sorted_keys._SLACK):
        come(records, keys, f"k{number}")
        records.pop(f"k{number}")
    assert len(keys._added) <= _sorted_keys._SLACK + 1
    assert list(keys.page("", after="")) == ["first"]


def test_keys_that_are_gone_are_forgotten() -> None:
    """Keys that came and went between pages are passed over, and do not pile up."""
    records: dict[str, None] = {"stays": None}
    keys = SortedKeys(records)
    for number in range(5 * _sorted_keys._SLACK):
        come(records, keys, f"k{number}")
        records.pop(f"k{number}")
        if number % 100 == 0:
            assert list(keys.page("", after="")) == ["stays"]
    assert keys._count + len(keys._added) <= 2 + _sorted_keys._SLACK


def test_many_keys_are_in_order_before_anybody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """L7: where keys are many the first page sorts nothing, and what comes and goes afterwards does not pile up."""
    monkeypatch.setattr(_sorted_keys, "_MANY", 1_000)
    records: dict[str, None] = {}
    keys = SortedKeys(records)
    for number in range(3_000):
        come(records, keys, f"k{number:06}")
        if number % 32 == 0:
            keys.tend()
    keys.tend()
    assert keys.used
    assert (keys._count, keys._added) == (3_000, [])
    for number in range(10_000):
        come(records, keys, f"x{number:06}")
        records.pop(f"x{number:06}")
        if number % 32 == 0:
            keys.tend()
    assert keys._count <= 3_000 + 1_000
    monkeypatch.setattr(SortedKeys, "_cut", None)  # which would sort them all
    assert list(keys.page("", after="")) == [f"k{number:06}" for number in range(3_000)]
