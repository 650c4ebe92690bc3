"""Keys and owners of different projects and principals never meet in the store."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leased.errors import InvalidRequest
from leased.server.principals import LOCAL, Kind, Principal
from leased.server.tenancy import shown_key, shown_owner, stored_beginning, stored_key, stored_owner

NAMES = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=8)
KINDS = st.sampled_from(["member", "function", "service"])


def principal(project: str, kind: Kind = "member", id: str = "ada") -> Principal:
    return Principal(project=project, kind=kind, id=id)


@given(NAMES, NAMES, NAMES, NAMES)
def test_keys_of_two_projects_never_meet(one: str, key: str, other: str, other_key: str) -> None:
    """SEC10: stored keys are equal only for the same project and key; each is shown as its caller knows it."""
    first, second = principal(one), principal(other)
    assert (stored_key(first, key) == stored_key(second, other_key)) == ((one, key) == (other, other_key))
    assert shown_key(first, stored_key(first, key)) == key
    assert stored_key(LOCAL, key) == key != stored_key(first, key)


@given(NAMES, NAMES, NAMES, NAMES)
def test_a_beginning_stays_in_its_project(one: str, beginning: str, other: str, key: str) -> None:
    """A list by prefix finds the project's keys that begin so, and no other project's."""
    found = stored_key(principal(other), key).startswith(stored_beginning(principal(one), beginning))
    assert found == (one == other and key.startswith(beginning))


@given(KINDS, NAMES, NAMES, KINDS, NAMES, NAMES)
def test_owners_match_only_in_all_three(
    kind: Kind, id: str, owner: str, other_kind: Kind, other_id: str, other_owner: str
) -> None:
    """O2: the same principal, the same kind of caller and the same owner text, or it is another owner."""
    stored = stored_owner(principal("p", kind, id), owner)
    other = stored_owner(principal("p", other_kind, other_id), other_owner)
    assert (stored == other) == ((kind, id, owner) == (other_kind, other_id, other_owner))
    assert shown_owner(stored) == owner


def test_what_no_store_could_hold_is_refused() -> None:
    """The longest key of a project is so short that all stores can hold it with its project."""
    team = principal("team")
    assert len(stored_key(team, "k" * 250)) == 255
    with pytest.raises(InvalidRequest) as caught:
        stored_key(team, "k" * 251)
    assert caught.value.code == "LOCK_KEY_INVALID"
    assert "250" in caught.value.message
    with pytest.raises(InvalidRequest):
        stored_owner(team, "o" * 250)
    assert stored_key(LOCAL, "k" * 255) == "k" * 255
    assert stored_owner(LOCAL, "me") == "me"
    assert stored_owner(team, None) is None is shown_owner(None)
