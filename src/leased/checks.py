"""Checking and converting what callers pass: keys, owners, durations, metadata. It raises `InvalidRequest` alone."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, TypeAlias

from leased.errors import InvalidRequest
from leased.policy import FOREVER, MAX_FENCING_TOKEN, MAX_KEY_LENGTH, MAX_METADATA_SIZE, MAX_TTL, min_ttl

Duration: TypeAlias = float | str | timedelta
"""Seconds as a number, a `timedelta`, or text such as `"1m30s"` or `"250ms"`."""

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?|\.\d+)(ms|[smhdw])", re.ASCII)
_NUMBER = re.compile(r"(\d+(?:\.\d*)?|\.\d+)", re.ASCII)
_RESERVED_METADATA = frozenset({"host", "pid", "program"})


def shown(value: object) -> str:
    """A value as it may stand in a message: short, on one line, with control and direction marks escaped."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, or lists without end in each other
        text = f"{type(value).__name__} too long to show"
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text[:81])
    return f"{text[:80]}…" if len(text) > 80 else text


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """The known word that was meant, as far as that can be guessed: one that begins like this, else the closest."""
    import difflib  # only for messages

    meant = [name for name in known if name.startswith(word)] or difflib.get_close_matches(word, known, n=1)
    return f"did you mean {meant[0]}?" if meant else None


def check_key(key: object, *, what: str = "key") -> str:
    """The key (or owner) itself, or `InvalidRequest`: 1 to 255 characters, any text without control characters."""
    if isinstance(key, str) and key and len(key) <= MAX_KEY_LENGTH and key.isprintable():
        return key
    if not isinstance(key, str):
        raise InvalidRequest(
            f"a {what} is text, not {type(key).__name__} ({shown(key)})", code="LOCK_KEY_INVALID", hint="use str()"
        )
    if not key:
        raise InvalidRequest(
            f"the {what} is empty; 1 to {MAX_KEY_LENGTH} characters are allowed", code="LOCK_KEY_INVALID"
        )
    if len(key) > MAX_KEY_LENGTH:
        raise InvalidRequest(
            f"{what} {shown(key)!r} has {len(key)} characters; 1 to {MAX_KEY_LENGTH} are allowed",
            code="LOCK_KEY_INVALID",
            hint="shorten it, for instance by a hash of its long part",
        )
    return check_plain(key, what=what, code="LOCK_KEY_INVALID")


def check_plain(text: str, *, what: str, code: str = "LOCK_INVALID_REQUEST") -> str:
    """The text itself, of any length, or `InvalidRequest` where it has control characters or surrogates."""
    if text.isprintable():
        return text
    for place, character in enumerate(text):
        if unicodedata.category(character) in ("Cc", "Cs"):
            raise InvalidRequest(
                f"{what} '{shown(text)}' has the control or surrogate character U+{ord(character):04X} "
                f"at position {place}; only text without them is allowed",
                code=code,
                hint="remove or encode it",
            )
    return text


def check_owner(owner: object) -> str | None:
    """The owner itself, `None` for none, or `InvalidRequest`."""
    return None if owner is None else check_key(owner, what="owner")


def check_prefix(prefix: object) -> str:
    """The beginning of keys itself, any text; or `InvalidRequest`."""
    if not isinstance(prefix, str):
        raise InvalidRequest(f"a prefix is text, not {type(prefix).__name__} ({shown(prefix)})", hint="'' is all keys")
    if any(unicodedata.category(character) == "Cs" for character in prefix):
        raise InvalidRequest(f"the prefix {shown(prefix)!r} has a surrogate character, which no key can have")
    return prefix


def check_limit(limit: object) -> int | None:
    """How many to list at most, `None` for all; or `InvalidRequest`."""
    if limit is not None and (type(limit) is not int or limit < 1):
        raise InvalidRequest(f"a limit is a whole number from 1, not {shown(limit)}", hint="None lists all")
    return limit


def check_fencing_token(number: object) -> int | None:
    """The fencing token itself, `None` for none, or `InvalidRequest`."""
    if number is not None and (type(number) is not int or not 0 < number <= MAX_FENCING_TOKEN):
        raise InvalidRequest(
            f"a fencing token is a whole number from 1 to {MAX_FENCING_TOKEN}, not {shown(number)}",
            hint="status and list show the number of the holder",
        )
    return number


def seconds(value: object, *, what: str) -> float:
    """A duration in seconds: a number, a `timedelta` or text; never negative, never NaN."""
    number: float
    if type(value) is float:
        number = value
    elif isinstance(value, timedelta):
        number = value.total_seconds()
    elif isinstance(value, str):
        number = _read_duration(value, what=what)
    elif isinstance(value, (bool, bytes, bytearray)) or value is None:
        raise _bad_duration(value, what=what)
    else:
        try:
            number = float(value)  # type: ignore[arg-type]  # int, Decimal, Fraction; anything else is refused
        except (TypeError, ValueError, OverflowError):
            raise _bad_duration(value, what=what) from None
    if math.isnan(number) or number < 0:
        raise InvalidRequest(
            f"{what} must not be negative or NaN, and {shown(value)} is", hint="pass seconds, such as 30 or '30s'"
        )
    return number


def check_ttl(value: object, *, margin: float) -> float:
    """A ttl in seconds within the limits: what the clock margins leave more than half of, up to `MAX_TTL`."""
    ttl = seconds(value, what="ttl")
    least = min_ttl(margin)
    if not least <= ttl <= MAX_TTL:
        raise InvalidRequest(
            f"ttl {shown(value)} is outside {least:g} s to {MAX_TTL:.0f} s (90 days)",
            code="LOCK_TTL_OUT_OF_RANGE",
            hint=f"choose {least:g} s or more; 30 s suits most work, for blocks renew their leases",
        )
    return ttl


def check_wait(value: object) -> float:
    """A wait in seconds; `FOREVER` is allowed, any other endless or negative one is not."""
    return FOREVER if isinstance(value, float) and value == FOREVER else seconds(value, what="wait")


def check_span(value: object, *, what: str, least: float = 0.0, most: float = MAX_TTL) -> float:
    """A duration of the terms (`max_hold`, `hold_at_least`, `lock_delay`, …) in seconds, within its limits."""
    span = seconds(value, what=what)
    if not least <= span <= most:
        raise InvalidRequest(
            f"{what} {shown(value)} is outside {least:g} s to {most:.0f} s", hint="choose one within these limits"
        )
    return span


def check_metadata(metadata: object) -> dict[str, Any]:
    """The caller's metadata: a dictionary with text keys that JSON can hold, at most 1 KiB of it."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping) or not all(isinstance(name, str) for name in metadata):
        raise InvalidRequest(f"metadata must be a dictionary with text keys, not {shown(metadata)}")
    reserved = sorted(_RESERVED_METADATA & metadata.keys())
    if reserved:
        raise InvalidRequest(f"metadata may not name {', '.join(reserved)}: every lease carries that by itself")
    try:
        size = len(json.dumps(dict(metadata), allow_nan=False).encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(
            f"metadata must be JSON: {error}", hint="use text, numbers, lists and dictionaries"
        ) from None
    if size > MAX_METADATA_SIZE:
        raise InvalidRequest(f"metadata has {size} bytes as JSON; {MAX_METADATA_SIZE} are allowed", hint="shorten it")
    return dict(metadata)


def _read_duration(text: str, *, what: str) -> float:
    stripped = text.strip()
    if _NUMBER.fullmatch(stripped):
        return float(stripped)
    total, at = 0.0, 0
    for part in _PART.finditer(stripped):
        if part.start() != at:
            break
        total += float(part[1]) * _UNITS[part[2]]
        at = part.end()
    if not stripped or at != len(stripped):
        raise _bad_duration(text, what=what)
    return total


def _bad_duration(value: object, *, what: str) -> InvalidRequest:
    return InvalidRequest(
        f"{what} {shown(value)!r} is not a duration",
        hint="pass seconds, a timedelta, or text such as '1m30s' or '250ms'",
    )
