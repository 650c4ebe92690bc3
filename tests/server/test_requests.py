"""Bodies of requests: what is read, and everything that is refused instead of being guessed at."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from leased.errors import InvalidRequest
from leased.server.manage_requests import CreateCredentialRequest
from leased.server.requests import (
    MAX_DEPTH,
    AcquireRequest,
    BatchRequest,
    ForceReleaseRequest,
    Reader,
    RenewRequest,
    check_depth,
)

ACQUIRE, RENEW, BATCH = Reader(AcquireRequest), Reader(RenewRequest), Reader(BatchRequest)
LONG = b"9" * 5_000
LEAST: dict[str, Any] = {"key": "k", "ttlMs": 1000}


def refusal(body: bytes | dict[str, Any], reader: Reader[Any] = ACQUIRE) -> InvalidRequest:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(InvalidRequest) as caught:
        reader.read(text)
    return caught.value


def test_a_request_is_read_as_it_was_meant() -> None:
    """Members have camelCase names; what was not given is told from what was given as nothing."""
    request = ACQUIRE.read(json.dumps({**LEAST, "owner": None, "waitMs": 5, "metadata": {"a": {"b": [1]}}}).encode())
    assert (request.key, request.ttl_ms, request.owner, request.wait_ms) == ("k", 1000, None, 5)
    assert request.token is UNSET
    assert request.metadata == {"a": {"b": [1]}}


@pytest.mark.parametrize(
    "body",
    [
        b'{"key":"a","ttlMs":1000,"key":"b"}',
        b'{"key":"a","ttlMs":1000,"k\\u0065y":"b"}',
        b'{"key":"a","ttlMs":5,"ttlMs":1000}',
        b'{"key":"a","ttlMs":1000,"owner":"x","owner":null}',
        b'{"key":"a","ttlMs":1000,"metadata":{"x":1,"x":2}}',
        b'{"key":"\\u0022\\u0022a","ttlMs":5,"ttlMs":1000}',  # as many quotation marks as if it came once
        b'{"key":"a\\u0022\\u0022","ttlMs":1000,"metadata":{"x":1,"x":2}}',
        b'{"key":"a","ttlMs":1000,"metadata":{"deep":[{"x":1,"x":2}]}}',
    ],
)
def test_no_member_comes_twice(body: bytes) -> None:
    """SEC12: a proxy and the service could otherwise read two different requests."""
    assert "twice" in refusal(body).message


def test_no_member_of_a_batch_comes_twice() -> None:
    """SEC12, for operations within a batch."""
    twice = b'{"operations":[{"operation":"look","key":"a","token":"t","key":"b"}]}'
    assert "twice" in refusal(twice, BATCH).message
    look = b'[{"operation":"look","key":"a","token":"t"}]'
    assert "twice" in refusal(b'{"operations":%s,"operations":%s}' % (look, look), BATCH).message


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"key"',
        b"{",
        b'{"key":"a","ttlMs":1000} {}',
        b'{"key":"a","ttlMs":1000,}',
        b"\xef\xbb\xbf" + b'{"key":"a","ttlMs":1000}',
        '{"key":"a","ttlMs":1000}'.encode("utf-16"),
        b'{"key":"a\xff","ttlMs":1000}',
        b'{"key":"a\xed\xa0\x80","ttlMs":1000}',
        b'{"key":"\\ud800","ttlMs":1000}',
        b'{"key":"a","ttlMs":NaN}',
        b'{"key":"a","ttlMs":Infinity}',
        b'{"key":"a","ttlMs":1e3}',
        b'{"key":"a","ttlMs":1000.0}',
        b'{"key":"a","ttlMs":01000}',
        b'{"key":"a","ttlMs":"1000"}',
        b'{"key":"a","ttlMs":true}',
        b'{"key":"a","ttlMs":null}',
        b'{"key":1,"ttlMs":1000}',
        b"{'key':'a','ttlMs':1000}",
        b'{"key":"a","ttlMs":1000 /* comment */}',
        b'{"ttlMs":1000}',
        b'{"key":"a"}',
        b'{"key":"a","ttlMs":1000,"TTLms":5}',
        b'{"key":"a","ttlMs":1000,"waitMs":-1}',
        b'{"key":"a","ttlMs":1000,"waitMs":9007199254740992}',
        b'{"key":"a","ttlMs":1000,"token":"short"}',
        b'{"key":"a","ttlMs":1000,"metadata":[]}',
        b'{"key":"a","ttlMs":1000,"operation":"renew"}',
        b'{"__proto__":{},"key":"a","ttlMs":1000}',
    ],
)
def test_what_is_no_such_request_is_refused(body: bytes) -> None:
    """SEC12: strict JSON, no NaN, whole numbers in their range, no unknown members."""
    assert refusal(body).http_status == 400


@pytest.mark.parametrize("ttl", [0, -1, 90 * 86_400_000 + 1, 2**31 * 1000, 2**53, 2**63, 2**64])
def test_a_ttl_beyond_all_limits_has_a_code_of_its_own(ttl: int) -> None:
    """C061: it is refused before it reaches a store, never cut or wrapped."""
    assert refusal({"key": "k", "ttlMs": ttl}).code == "LOCK_TTL_OUT_OF_RANGE"
    assert refusal({"key": "k", "ttlMs": ttl, "token": "t", "renewal": 1}, RENEW).code == "LOCK_TTL_OUT_OF_RANGE"


@pytest.mark.parametrize("key", ["", "k" * 256])
def test_a_key_of_a_wrong_length_has_a_code_of_its_own(key: str) -> None:
    """R3: `LOCK_KEY_INVALID`; a key counts characters, so 255 of any kind are allowed (C152)."""
    assert refusal({**LEAST, "key": key}).code == "LOCK_KEY_INVALID"
    assert ACQUIRE.read(json.dumps({**LEAST, "key": "😀" * 255}).encode()).key == "😀" * 255


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({**LEAST, "ttlMs": "30s"}, "ttlMs is '30s'; allowed is a whole number of milliseconds from 1 to 7776000000"),
        (
            {**LEAST, "ttlMs": 0},
            "ttlMs is 0 (0 s); allowed is a whole number of milliseconds from 1 to 7776000000 (0.001 s to 7776000 s)",
        ),
        ({**LEAST, "ttlMs": None}, "ttlMs is null; allowed"),
        ({**LEAST, "ttlMs": 30.5}, "ttlMs is 30.5; allowed"),
        ({**LEAST, "key": "k" * 300}, "…' (300 characters); allowed is text of 1 to 255 characters"),
        ({**LEAST, "key": ""}, "key is empty text; allowed"),
        ({**LEAST, "owner": 3}, "owner is 3; allowed is text of 1 to 255 characters or null"),
        ({**LEAST, "late": "\x1b[2Jyes"}, "late is '\\\\x1b[2Jyes'; allowed is true or false"),
        ({**LEAST, "metadata": [1, 2]}, "metadata is a list of 2; allowed is an object"),
        ({**LEAST, "token": "lk_s3cret"}, "token is text of 9 characters; allowed is text of 16 to 255 characters"),
        ({**LEAST, "token": 31337}, "token is no text; allowed"),
        ({"key": "k"}, "the body lacks the member ttlMs, a whole number of milliseconds from 1"),
        ({**LEAST, "ttl": 30}, "the body has the unknown member 'ttl' (known are key, requestId, ttlMs"),
        (b"[1]", "the body is a list of 1; allowed is an object"),
        (b'{"ttlMs": "x", NaN', "the body is no JSON: Expecting property name"),
        (b'{"key":"k","ttlMs":1e999}', "ttlMs is 1e999; allowed is a whole number of milliseconds"),
        (b'{"key":"k","ttlMs":%s}' % LONG, f"ttlMs is {'9' * 80}… (5000 characters); allowed is a whole number"),
        (b'{"key":"k","ttlMs":1,"token":%s}' % (b"31337" * 1_000), "token is no text; allowed"),
        (
            b'{"key":"k","ttlMs":1,"metadata":{"b":2,"a":1e999}}',
            "has the number 1e999; allowed are numbers up to 1.7e308 with at most 4300 characters (send it as text",
        ),
        (b'{"key":"k","ttlMs":1,"metadata":{"a":{"b":[1,-1e999]}}}', "metadata has the number -1e999; allowed"),
        (
            b'{"key":"k","ttlMs":1,"metadata":{"a":%s}}' % LONG,
            f"metadata has the number {'9' * 80}… (5000 characters); allowed",
        ),
    ],
)
def test_a_refusal_says_which_member_what_was_sent_and_what_is_allowed(body: Any, words: str) -> None:
    """11: in words of the interface, with units; a secret is not repeated."""
    refused = str(refusal(body))
    assert words in refused
    assert "`" not in refused
    assert "s3cret" not in refused
    assert "31337" not in refused


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ({"operation": "look", "key": 3, "token": "t"}, "operations[1].key is 3; allowed is text of 1 to 255"),
        ({"operation": "look", "key": "a"}, "operations[1] lacks the member token, text of 0 to 255"),
        ({"operation": "wait"}, "operations[1].operation is 'wait'; allowed is one of abandon, acquire, look"),
        ({"operation": 3}, "operations[1].operation is 3; allowed is one of abandon"),
        ({}, "operations[1] lacks the member operation, one of abandon, acquire"),
        (5, "operations[1] is 5; allowed is an object whose member operation is one of abandon"),
        ({"operation": "look", "key": "a", "token": "t", "ttlMs": 1}, "operations[1] has the unknown member 'ttlMs'"),
    ],
)
def test_a_refusal_of_a_batch_says_which_operation(operation: Any, words: str) -> None:
    """11: with its number, from 0."""
    look = {"operation": "look", "key": "a", "token": "t"}
    assert words in str(refusal({"operations": [look, operation]}, BATCH))


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        (b'{"operation":"acquire","key":"a","ttlMs":1,"metadata":{"a":1e999}}', "[0].metadata has the number 1e999"),
        (b'{"operation":"acquire","key":"a","ttlMs":1,"metadata":{"a":%s}}' % LONG, "[0].metadata has the number 999"),
        (b'{"operation":"acquire","key":"a","ttlMs":%s}' % LONG, "operations[0].ttlMs is 999"),
        (
            b'{"operation":"release","key":"a"},{"a":%s}' % LONG,
            "operations[0] lacks the member token, text of 0 to 255",
        ),
        (b'{"operation":"look","key":"a","ttlMs":%s}' % LONG, "member 'ttlMs' (known are key, requestId, token"),
        (b'{"operation":"release","key":"a"},{', "the body is no JSON: Expecting property name"),
    ],
)
def test_a_refusal_of_an_unreadable_operation_says_what_is_wrong_with_it(operation: bytes, words: str) -> None:
    """11: also where a number somewhere in the batch is too large to be read, or the end of it is no JSON."""
    assert words in str(refusal(b'{"operations":[%s]}' % operation, BATCH))


def test_a_refusal_of_a_credential_says_what_there_is() -> None:
    """11: for the bodies of administrators as well."""
    reader = Reader(CreateCredentialRequest)
    assert "kind is 'user'; allowed is one of function, member, service" in str(
        refusal({"kind": "user", "name": "a"}, reader)
    )
    wrong = refusal({"kind": "service", "name": "a", "scopes": ["all"]}, reader)
    assert "scopes[0] is 'all'; allowed is one of full, locks.manage" in str(wrong)


def test_depth_has_an_end() -> None:
    """SEC12: arrays and objects lie at most 16 deep in each other, and no depth exhausts the stack."""

    def nested(depth: int) -> bytes:
        return b'{"key":"a","ttlMs":1000,"metadata":{"x":' + b"[" * depth + b"]" * depth + b"}}"

    assert ACQUIRE.read(nested(MAX_DEPTH - 2)).metadata is not UNSET
    for depth in (MAX_DEPTH - 1, 500, 30_000):
        assert "deeper" in refusal(nested(depth)).message
    with pytest.raises(InvalidRequest):
        check_depth([[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]])


def test_a_batch_has_a_most_and_no_waits() -> None:
    """A batch holds 1 to 512 operations; none of them can wait."""
    look = {"operation": "look", "key": "a", "token": "t"}
    assert len(BATCH.read(json.dumps({"operations": [look] * 512}).encode()).operations) == 512
    refusal({"operations": [look] * 513}, BATCH)
    refusal({"operations": []}, BATCH)
    refusal({"operations": [{"operation": "acquire", **LEAST, "waitMs": 1}]}, BATCH)
    refusal({"operations": [{"operation": "force-release", "key": "a"}]}, BATCH)
    refusal({"operations": [{"key": "a", "token": "t"}]}, BATCH)


@given(
    st.fixed_dictionaries(
        {"key": st.text(min_size=1, max_size=20)},
        optional={
            "fencingToken": st.one_of(st.none(), st.integers(1, 2**53 - 1)),
            "reason": st.text(max_size=20),
            "requestId": st.text(min_size=1, max_size=20),
        },
    )
)
def test_quotes_in_values_are_no_twins(body: dict[str, Any]) -> None:
    """Whatever stands in the values, a body whose members come once is read, and read back equal."""
    text = json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
    request = Reader(ForceReleaseRequest).read(text)
    assert request.key == body["key"]
    assert request.reason == body.get("reason", UNSET)
    twice = text[:-1] + b', "key": "other"}'
    with pytest.raises(InvalidRequest):
        Reader(ForceReleaseRequest).read(twice)


@given(st.binary(max_size=200))
def test_noise_is_refused(noise: bytes) -> None:
    """No bytes at all make the reader fail in another way than by refusing."""
    for reader in (ACQUIRE, BATCH):
        with pytest.raises(InvalidRequest):
            reader.read(noise)
