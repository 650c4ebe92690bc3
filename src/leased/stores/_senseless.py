"""What the stores of servers have in common when an answer is not of the form which it must have."""

from __future__ import annotations

import struct

SENSELESS = (
    ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, struct.error,
)  # fmt: skip
"""What reading such an answer raises."""
