"""Keys, owners and prefixes: what is accepted is given back as it is, and can be stored and shown."""

from contextlib import suppress

from fuzz.given import text_of
from leased.checks import check_key, check_owner, check_prefix, shown
from leased.errors import InvalidRequest
from leased.policy import MAX_KEY_LENGTH


def check(data: bytes) -> None:
    """Only `InvalidRequest` is raised; an accepted key is UTF-8, within its limits, without control characters."""
    text = text_of(data)
    line = shown(text)
    assert line.isprintable()
    assert len(line) <= 900
    with suppress(InvalidRequest):
        key = check_key(text)
        assert key == text
        assert key.encode().decode() == text
        assert 1 <= len(key) <= MAX_KEY_LENGTH
        assert not {"\n", "\r", "\0", "\x1b", "\x7f", "\x85"} & set(key)
    with suppress(InvalidRequest):
        assert check_owner(text) == text
    with suppress(InvalidRequest):
        assert check_prefix(text).encode().decode() == text
