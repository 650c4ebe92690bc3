"""A guarded put to object storage that knows conditional writes (S3 and what speaks like it). It keeps the token in the
object's metadata, and overwrites nothing that it has not compared."""

from __future__ import annotations

from typing import Any

from leased.errors import InvalidRequest, StoreUnavailable
from leased.fences import _rule

METADATA = "fencing-token"
"""The name under which an object keeps its token."""

_TRIES = 10
_RACED = {"PreconditionFailed", "ConditionalRequestConflict", "412", "409"}
_MISSING = {"404", "NoSuchKey", "NotFound"}


def guarded_put(client: Any, *, bucket: str, key: str, body: Any, fencing_token: int | None, **options: Any) -> str:
    """Put an object unless a later lease has put it; gives the new ETag.

    `client` is boto3's, `options` go to `put_object`. The object's token is read, compared, and the put made on the
    condition that the object is still the same; where another came first, that is compared anew. An object without a
    token was never guarded, and is overwritten. Raises `StaleFencingToken`, and then nothing was written;
    `InvalidRequest` without a token, or for options that would undo the guard; `StoreUnavailable` where others kept
    coming first; and what boto3 raises, after which the write may have happened or not.
    """
    token = _rule.presented(fencing_token)
    undone = sorted({"IfMatch", "IfNoneMatch"} & options.keys())
    if undone:
        raise InvalidRequest(f"a guarded put makes its own condition: leave {', '.join(undone)} out")
    metadata = {**options.pop("Metadata", {}), METADATA: str(token)}
    for _ in range(_TRIES):
        condition = _condition(client, bucket=bucket, key=key, token=token)
        try:
            answer = client.put_object(Bucket=bucket, Key=key, Body=body, Metadata=metadata, **condition, **options)
        except client.exceptions.ClientError as error:
            if _code(error) not in _RACED:
                raise
        else:
            return str(answer["ETag"])
    raise StoreUnavailable(f"others wrote to {key!r} in bucket {bucket!r} {_TRIES} times in between", applied=False)


def _condition(client: Any, *, bucket: str, key: str, token: int) -> dict[str, str]:
    """What the put has to find: the object as it was compared, or none."""
    try:
        found = client.head_object(Bucket=bucket, Key=key)
    except client.exceptions.ClientError as error:
        if _code(error) in _MISSING:
            return {"IfNoneMatch": "*"}
        raise
    seen = found.get("Metadata", {}).get(METADATA)
    if seen is not None and not (seen.isascii() and seen.isdigit()):
        raise InvalidRequest(f"{key!r} in bucket {bucket!r} has the fencing token {seen!r}, which is none")
    _rule.check(key, fencing_token=token, seen=None if seen is None else int(seen))
    return {"IfMatch": found["ETag"]}


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
