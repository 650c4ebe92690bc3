"""Metadata as a store keeps it, read back for everybody who looks."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leased.model import read_metadata

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def as_json(text: str) -> dict[str, Any]:
    """What the library makes of it, where that is an object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


@given(st.text() | st.builds(json.dumps, JSON) | st.builds(lambda value: json.dumps(value, indent=1) + "\n ", JSON))
@example("")
@example(" {}")
@example("{} {}")
@example('{"a": 1}x')
@example('{"a": NaN}')
@example("[" * 100_000)
@example("9" * 10_000)
@example("\ufeff{}")
def test_it_is_read_as_json_and_never_fails(text: str) -> None:
    """K5: an object is what JSON says, with blanks around it too; everything else is shown as nothing."""
    assert repr(read_metadata(text)) == repr(as_json(text))


@pytest.mark.parametrize("text", ['{"a":1}', "{}", '{"a":{"b":[1,2]}}'])
def test_each_reader_has_an_object_of_his_own(text: str) -> None:
    """Who changes what he was shown changes it for nobody else."""
    first, second = read_metadata(text), read_metadata(text)
    first["mine"] = 1
    assert second == json.loads(text)
