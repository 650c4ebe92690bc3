"""API keys as text: one reading of each, and no other key matches what is stored of it."""

from fuzz.given import text_of
from leased.server.keys import Hasher, new_key, read_key

_HASHER = Hasher(b"p" * 32)
_OTHER = _HASHER.digest(new_key())


def check(data: bytes) -> None:
    """Nothing is raised; what was read is written the same."""
    text = text_of(data)
    found = read_key(text)
    if found is None:
        return
    assert found.text == text
    assert _HASHER.matches(found, _HASHER.digest(found))
    assert not _HASHER.matches(found, _OTHER)
    assert not _HASHER.matches(found, None)
    assert found.secret not in repr(found)
