"""The names that locks have in Redis: one slot each, read back without loss, and never those of others."""

import fnmatch
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from leased.stores._redis_names import Names

ODD = ["a", "a:b", "{x}y", "x}y{", "{}", "}{", "{", "}", "%7B", "%", "%25", "a*", "a?", "[a]", "\\", "ä", "日本", ":"]
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
NAMESPACES = ["", ":", "a", "a:", "{a}", "%3A"]


@pytest.mark.parametrize("key", ODD)
@pytest.mark.parametrize("namespace", NAMESPACES)
def test_the_whole_key_decides_the_slot(key: str, namespace: str) -> None:
    """C105: a lock has one name, record and channel alike, whose slot depends on the whole key and nothing else."""
    names = Names(namespace)
    record = names.record(key)
    assert key_slot(record) == key_slot(b"{" + record.rpartition(b":{")[2][:-1] + b"}")


@given(TEXT, st.sampled_from(NAMESPACES))
def test_a_key_is_read_back(key: str, namespace: str) -> None:
    """S3: the name of a record says which key it is of, whatever characters that has."""
    names = Names(namespace)
    assert names.key(names.record(key)) == key


def test_no_two_locks_share_a_name() -> None:
    """S3: keys and namespaces are told apart, however they look."""
    names = [Names(namespace).record(key) for namespace, key in itertools.product(NAMESPACES, ODD)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("key", ["a", "ab", "{x}y", "日本"])
def test_a_pattern_matches_records_that_begin_so(key: str) -> None:
    """A prefix without special characters matches the records of its keys, and no other namespace."""
    names = Names("")
    pattern = names.pattern(key[:1]).decode().replace("\\-", "-")
    assert fnmatch.fnmatchcase(names.record(key).decode(), pattern)
    assert not fnmatch.fnmatchcase(Names("n").record(key).decode(), pattern)
