"""Guarded objects in storage that knows conditional writes (S3 and what speaks like it).

A conditional write compares ETags, and the same bytes have the same ETag, whoever wrote them. So the object of the key
is a small pointer, different bytes for each write, and the data lies beside it under a name of its own.
"""

from __future__ import annotations

import json
import secrets
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from leased.errors import InvalidRequest, StaleFencingToken, StoreUnavailable
from leased.fences import _rule

_TRIES = 10
_RACED = {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}
_MISSING = {"404", "NoSuchKey", "NotFound"}
_LONGEST = 4096


@dataclass(frozen=True, slots=True)
class _Pointer:
    """What the object of a key says: where its data is, if there is any, and of which lease."""

    etag: str
    data: str | None
    fencing_token: int


def guarded_put(client: Any, *, bucket: str, key: str, body: Any, fencing_token: int | None, **options: Any) -> str:
    """Put data under this key, unless a later lease has; gives the name of the object that has the data.

    `client` is boto3's, `options` go to the `put_object` of the data. The pointer is replaced on the condition that it
    is still the one that was compared; where another write came first, that one is compared anew. The data before is
    deleted then. What a writer that died left behind is an object `KEY.TOKEN.…` to which no pointer leads; so is the
    data of a write of which nobody knows whether it happened: it is not deleted, for a pointer may lead to it.

    Raises `StaleFencingToken`, and then nothing that `guarded_get` finds was written; `InvalidRequest` without a token,
    and for an object at this key that is no pointer; `StoreUnavailable` where others kept coming first, or the same
    lease did while the answer to this write was lost (`applied` is `None` then); and what boto3 raises, after which the
    write may have happened or not.
    """
    token = _rule.presented(fencing_token)
    before = _find(client, bucket=bucket, key=key)
    _check(before, key, token=token)
    data = f"{key}.{token}.{secrets.token_hex(8)}"
    client.put_object(Bucket=bucket, Key=data, Body=body, **options)
    try:
        before = _point(client, bucket=bucket, key=key, data=data, token=token)
    except (StaleFencingToken, InvalidRequest, StoreUnavailable) as error:
        if not (isinstance(error, StoreUnavailable) and error.applied is None):
            with suppress(Exception):  # no pointer leads to it, and none will
                client.delete_object(Bucket=bucket, Key=data)
        raise
    if before is not None and before.data is not None:
        client.delete_object(Bucket=bucket, Key=before.data)
    return data


def guarded_read(client: Any, *, bucket: str, key: str, fencing_token: int | None, **options: Any) -> Any:
    """As `guarded_get`, for a holder that decides by what it reads: from then on nobody with a lower token writes.

    Raises `StaleFencingToken` where a later lease has written or read so; `InvalidRequest` as `guarded_put`;
    `StoreUnavailable` where others kept coming first; and what boto3 raises.
    """
    token = _rule.presented(fencing_token)
    for _ in range(_TRIES):
        found = _find(client, bucket=bucket, key=key)
        _check(found, key, token=token)
        if found is not None and found.fencing_token == token:
            return guarded_get(client, bucket=bucket, key=key, **options)
        data = None if found is None else found.data
        _replace(client, found, bucket=bucket, key=key, body=_body(token, data))
    raise _others(bucket, key)


def guarded_get(client: Any, *, bucket: str, key: str, **options: Any) -> Any:
    """What boto3's `get_object` gives for the data under this key, of the lease that wrote last, and `None` if there is
    none. `options` go there. Raises what boto3 raises, and `InvalidRequest` for an object that is no pointer."""
    for _ in range(_TRIES):
        found = _find(client, bucket=bucket, key=key)
        if found is None or found.data is None:
            return None
        try:
            return client.get_object(Bucket=bucket, Key=found.data, **options)
        except client.exceptions.ClientError as error:
            if _code(error) not in _MISSING:
                raise  # else a write came in between, and deleted it
    raise StoreUnavailable(f"{key!r} in bucket {bucket!r} was written {_TRIES} times while it was read", applied=False)


def _point(client: Any, *, bucket: str, key: str, data: str, token: int) -> _Pointer | None:
    """Let the pointer lead to this data; gives what it said before."""
    before: _Pointer | None = None
    done: bool | None = False
    for left in reversed(range(_TRIES + 1)):
        found = _find(client, bucket=bucket, key=key)
        if found is not None and found.data == data:
            return before  # the write before this look: it was done, and a second try of boto3's own was refused
        _check(found, key, token=token)
        if done is None and found is not None and found.fencing_token == token:
            raise StoreUnavailable(
                f"{key!r} in bucket {bucket!r} was written by the same lease while an answer was lost, and nobody "
                "knows which write came last",
                applied=None,
                hint="write again, and let one thread at a time write",
            )
        if not left:
            break
        before = found
        done = _replace(client, before, bucket=bucket, key=key, body=_body(token, data))
        if done:
            return before
    raise _others(bucket, key)


def _body(token: int, data: str | None) -> bytes:
    return json.dumps({"leased": 1, "fencingToken": token, "data": data}).encode()


def _replace(client: Any, before: _Pointer | None, *, bucket: str, key: str, body: bytes) -> bool | None:
    """Replace the pointer if it still is this one; `None` where it may have been, by a try that was not heard of."""
    condition = {"IfNoneMatch": "*"} if before is None else {"IfMatch": before.etag}
    try:
        client.put_object(Bucket=bucket, Key=key, Body=body, ContentType="application/json", **condition)
    except client.exceptions.ClientError as error:
        if _code(error) not in _RACED | _MISSING:
            raise
        heard = error.response.get("ResponseMetadata", {}).get("RetryAttempts") == 0
        return False if heard else None
    return True


def _others(bucket: str, key: str) -> StoreUnavailable:
    return StoreUnavailable(f"others wrote to {key!r} in bucket {bucket!r} {_TRIES} times in between", applied=False)


def _find(client: Any, *, bucket: str, key: str) -> _Pointer | None:
    try:
        answer = client.get_object(Bucket=bucket, Key=key)
    except client.exceptions.ClientError as error:
        if _code(error) in _MISSING:
            return None
        raise
    told: Any = None
    with suppress(ValueError):
        told = json.loads(answer["Body"].read(_LONGEST))
    if isinstance(told, dict) and told.get("leased") == 1:
        data, token = told.get("data"), told.get("fencingToken")
        if isinstance(data, str | None) and type(token) is int and "data" in told:
            return _Pointer(answer["ETag"], data, token)
    raise InvalidRequest(
        f"{key!r} in bucket {bucket!r} is an object that was not written by guarded_put",
        hint="choose another key, or move that object away",
    )


def _check(found: _Pointer | None, key: str, *, token: int) -> None:
    _rule.check(key, fencing_token=token, seen=None if found is None else found.fencing_token)


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
