"""Durations as text and numbers: what is accepted is never negative and never NaN."""

import math
from contextlib import suppress
from fractions import Fraction

from fuzz.given import text_of
from leased.checks import check_fencing_token, check_span, check_ttl, check_wait, seconds
from leased.errors import InvalidRequest
from leased.policy import MAX_TTL


def check(data: bytes) -> None:
    """Only `InvalidRequest` is raised, for texts and for whole numbers of any size."""
    number = int.from_bytes(data, "big", signed=True)
    fraction = Fraction(number, 1 + len(data))
    for value in (text_of(data), number, fraction):
        with suppress(InvalidRequest):
            assert seconds(value, what="ttl") >= 0
        with suppress(InvalidRequest):
            assert 0.105 <= check_ttl(value, margin=0.02) <= MAX_TTL
        with suppress(InvalidRequest):
            assert 1.0 <= check_span(value, what="timeout", least=1.0, most=2.0) <= 2.0
        with suppress(InvalidRequest):
            assert not math.isnan(check_wait(value))
        with suppress(InvalidRequest):
            assert check_fencing_token(value) == value
