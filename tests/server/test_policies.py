"""Keys and durations that the service allows, by kind of caller."""

from __future__ import annotations

import re

import pytest

from leased.errors import InvalidRequest
from leased.server.policies import Policies
from leased.server.principals import LOCAL, Kind, Principal
from leased.server.settings import Settings

STRICT = Policies(Settings(registry="somewhere"))
ANY = Policies(Settings(registry="somewhere", keys="any"))
DAY = 86_400.0


def who(kind: Kind) -> Principal:
    return Principal(project="p", kind=kind, id="ada")


def allowed(check: object, *arguments: object, **named: object) -> bool:
    try:
        check(*arguments, **named)  # type: ignore[operator]
    except InvalidRequest:
        return False
    return True


@pytest.mark.parametrize("key", ["a", "A-z_0.9:x", "k" * 128])
def test_strict_keys_read_the_same_everywhere(key: str) -> None:
    """R3: letters, digits and `.`, `_`, `:`, `-`, at most 128, are allowed to everybody."""
    assert all(allowed(STRICT.check_key, who(kind), key) for kind in ("member", "function", "service"))


@pytest.mark.parametrize("key", ["", "k" * 129, "a b", "a/b", "ä", "a\n", "a%2f", "١", "а"])
def test_other_keys_are_refused_with_their_code(key: str) -> None:
    """R3: 400 `LOCK_KEY_INVALID`, also for what only looks like a letter or a digit, and for a trailing newline."""
    with pytest.raises(InvalidRequest) as caught:
        STRICT.check_key(who("member"), key)
    assert caught.value.code == "LOCK_KEY_INVALID"


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("k" * 129, "has 129 characters; 1 to 128 are allowed"),
        ("é" * 300, "has 300 characters; 1 to 128 are allowed"),
        ("", "is empty; 1 to 128 are allowed"),
        ("a b", "has the character ' ' U+0020 at position 1"),
        ("a:\n", "has the character U+000A at position 2"),
    ],
)
def test_the_refusal_of_a_key_names_what_is_wrong(key: str, words: str) -> None:
    """11: the length with its limit, or the character with its place; not both."""
    with pytest.raises(InvalidRequest, match=re.escape(words)):
        STRICT.check_key(who("member"), key)


def test_durations_are_told_in_seconds_and_in_the_words_of_the_wire() -> None:
    """11: who calls from Python thinks in seconds, who sends JSON in milliseconds: each finds his own."""
    with pytest.raises(InvalidRequest) as short:
        STRICT.check_ttl(who("member"), 1.5)
    assert "a ttl of 1.5 s is outside 5 s to 86400 s" in short.value.message
    assert "(ttlMs 1500, outside 5000 to 86400000)" in short.value.message
    with pytest.raises(InvalidRequest) as long:
        STRICT.check_terms(who("member"), hold_at_least=0.0, lock_delay=61.0)
    assert "lock_delay 61 s is above 60 s" in long.value.message
    assert "(lockDelayMs 61000, above 60000)" in long.value.message


def test_any_keys_are_those_of_the_library() -> None:
    """R3: with `keys=any`, and always without credentials, the rules of the library count."""
    for policies, principal in ((ANY, who("member")), (STRICT, LOCAL)):
        assert allowed(policies.check_key, principal, "ä/b c")
        assert not allowed(policies.check_key, principal, "a\nb")


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [("member", 5.0, DAY), ("function", 5.0, DAY), ("service", 5.0, 90 * DAY), ("local", 0.001, 90 * DAY)],
)
def test_ttl_has_a_range_for_each_kind_of_caller(kind: Kind, least: float, most: float) -> None:
    """R3: both bounds are allowed, what is beyond them is refused with both of them named."""
    principal = LOCAL if kind == "local" else who(kind)
    assert STRICT.ttl_range(principal) == (least, most)
    STRICT.check_ttl(principal, least)
    STRICT.check_ttl(principal, most)
    for ttl in (least / 2, most + 0.001):
        with pytest.raises(InvalidRequest) as caught:
            STRICT.check_ttl(principal, ttl)
        assert caught.value.code == "LOCK_TTL_OUT_OF_RANGE"
        assert f"{round(most * 1000)}" in caught.value.message
    assert STRICT.shown(principal)["maxTtlMs"] == most * 1000


def test_a_key_can_be_kept_closed_only_so_long() -> None:
    """R3: `holdAtLeastMs` within the caller's ttl, `lockDelayMs` at most a minute."""
    for hold, delay, fine in ((DAY, 60.0, True), (DAY + 1, 0.0, False), (0.0, 60.1, False)):
        assert allowed(STRICT.check_terms, who("member"), hold_at_least=hold, lock_delay=delay) is fine
    assert allowed(STRICT.check_terms, LOCAL, hold_at_least=DAY + 1, lock_delay=DAY)
