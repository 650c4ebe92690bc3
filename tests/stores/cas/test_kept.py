"""The value that stands for a key: what is written is read again as it was, and what a glance at it tells."""

import json

from hypothesis import given
from hypothesis import strategies as st

from leased.clocks import step
from leased.stores import _cas_record as values
from leased.stores import _cas_store as core
from leased.stores._cas_record import Kept, Mark
from leased.stores._sql_record import NEVER_GRANTED, RETENTION, SECOND, Record
from tests.stores.cas.acting import crew, granted, release

TIMES = st.integers(0, 2**53)
TEXTS = st.text(max_size=40).map(lambda text: text.encode(errors="replace"))
TOKENS = st.binary(min_size=32, max_size=32)
RECORDS = st.builds(
    Record,
    token=st.none() | TOKENS,
    owner=st.none() | TEXTS,
    held_by=TEXTS,
    metadata=TEXTS,
    fencing_token=TIMES,
    renewal=st.integers(-(2**31), 2**53),
    acquired_at=TIMES,
    expires_at=TIMES,
    free_at=TIMES,
    deadline=TIMES,
    ttl=TIMES,
    hold_at_least=TIMES,
    lock_delay=TIMES,
    late=st.booleans(),
    forced=st.booleans(),
    marked_until=TIMES,
)
MARKS = st.dictionaries(TOKENS, st.builds(Mark, reason=st.text(max_size=20), until=TIMES), max_size=3)


@given(record=RECORDS, marks=MARKS)
def test_what_is_written_is_read_as_it_was(record: Record, marks: dict[bytes, Mark]) -> None:
    """Any record, with any text in it, is JSON that says just this: so that it may be remembered instead of read."""
    kept = Kept(record, marks)
    value = values.write(kept)
    assert json.loads(value)["format"] == 1
    assert values.read("key", value) == kept


@given(record=RECORDS, marks=MARKS, now=TIMES)
def test_a_glance_never_takes_what_is_over_for_needed(record: Record, marks: dict[bytes, Mark], now: int) -> None:
    """What a sweep passes over at a glance is needed; what it does not is looked at whole."""
    granted = record._replace(fencing_token=max(record.fencing_token, 1))
    kept = Kept(granted, marks)
    at = now / SECOND
    if values.needed(values.write(kept), at):
        assert kept.forget_at > at


def test_a_glance_tells_of_young_records_and_of_no_others() -> None:
    """A record whose key opened less than a day ago is needed; one of a key that nobody had is not."""
    young = values.write(Kept(NEVER_GRANTED._replace(fencing_token=1, free_at=10 * SECOND)))
    assert values.needed(young, 9.0 + RETENTION / SECOND)
    assert not values.needed(young, 10.0 + RETENTION / SECOND)
    assert not values.needed(values.write(Kept()), 2.0 + RETENTION / SECOND)
    assert not values.needed(b"something else", 0.0)


def test_sweeps_are_seldom_while_there_is_nothing_to_remove() -> None:
    """LIVE7: each sweep that removes nothing puts off the next one, up to a bound; one that removes ends that."""
    (client,) = crew(0.0)
    granted(client, "token-of-16-letters")
    release(client, "token-of-16-letters")
    store = client.store
    for _ in range(4):
        step(store._sweep(client.shelf.old))
    assert store._sweep_every == core._SWEEP_SELDOM
    store.offset = 3 * 86_400.0
    step(store._sweep(client.shelf.old))
    assert store._sweep_every == core._SWEEP_EVERY
    assert not client.shelf.data
