"""Which keys and durations a caller may ask for: the service's policy, as pure checks that raise `InvalidRequest`."""

from __future__ import annotations

import re

from leased.checks import check_key, shown
from leased.errors import InvalidRequest
from leased.policy import MAX_KEY_LENGTH, MAX_TTL
from leased.server.principals import Principal
from leased.server.settings import Settings
from leased.wire import Body, at_least

STRICT_KEY_LENGTH = 128
SHORTEST_OPEN_TTL = 0.001
"""Without credentials any ttl is allowed; whoever asks knows his own clock margin."""

_STRICT_KEY = re.compile(rf"[A-Za-z0-9._:-]{{1,{STRICT_KEY_LENGTH}}}")


class Policies:
    """The policy of one service; callers without credentials may use any key and any ttl."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._strict = settings.keys == "strict"

    def check_key(self, principal: Principal, key: str) -> None:
        """Raise `InvalidRequest` for a key that this caller may not use."""
        if principal.kind == "local" or not self._strict:
            if not 0 < len(key) <= MAX_KEY_LENGTH or not key.isprintable():
                check_key(key)
        elif _STRICT_KEY.fullmatch(key) is None:
            raise _not_strict(key)

    def ttl_range(self, principal: Principal) -> tuple[float, float]:
        """The shortest and the longest ttl of this caller, in seconds."""
        if principal.kind == "local":
            return SHORTEST_OPEN_TTL, MAX_TTL
        settings = self._settings
        return settings.min_ttl, settings.max_service_ttl if principal.kind == "service" else settings.max_ttl

    def check_ttl(self, principal: Principal, ttl: float) -> None:
        """Raise `InvalidRequest` for a ttl, in seconds, that this caller may not ask for."""
        if principal.kind == "local" and SHORTEST_OPEN_TTL <= ttl <= MAX_TTL:
            return
        least, most = self.ttl_range(principal)
        if not least <= ttl <= most:
            raise InvalidRequest(
                f"a ttl of {_spelled(ttl)} is outside {_spelled(least)} to {_spelled(most)}, which is what the service "
                f"allows this caller (ttlMs {at_least(ttl)}, outside {at_least(least)} to {at_least(most)})",
                code="LOCK_TTL_OUT_OF_RANGE",
                hint="choose one within these limits; they are settings of the service",
            )

    def check_terms(self, principal: Principal, *, hold_at_least: float, lock_delay: float) -> None:
        """Raise `InvalidRequest` for a key that would stay closed longer than this caller may keep it so."""
        local = principal.kind == "local"
        for name, member, value, most in (
            ("hold_at_least", "holdAtLeastMs", hold_at_least, self.ttl_range(principal)[1]),
            ("lock_delay", "lockDelayMs", lock_delay, MAX_TTL if local else self._settings.max_lock_delay),
        ):
            if value > most:
                raise InvalidRequest(
                    f"{name} {_spelled(value)} is above {_spelled(most)}, the most for this caller "
                    f"({member} {at_least(value)}, above {at_least(most)})",
                    hint="choose a shorter one; the limit is a setting of the service",
                )

    def shown(self, principal: Principal) -> Body:
        """What `/v1/capabilities` says of them to this caller."""
        least, most = self.ttl_range(principal)
        local, settings = principal.kind == "local", self._settings
        strict = self._strict and not local
        return {
            "keys": "strict" if strict else "any",
            "maxKeyLength": STRICT_KEY_LENGTH if strict else MAX_KEY_LENGTH - len(principal.project) - (not local),
            "minTtlMs": at_least(least),
            "maxTtlMs": at_least(most),
            "maxHoldAtLeastMs": at_least(most),
            "maxLockDelayMs": at_least(MAX_TTL if local else settings.max_lock_delay),
            "maxWaitSliceMs": at_least(settings.max_wait_slice),
            "maxWaiters": settings.max_waiters if local else settings.max_waiters_each,
        }


def _not_strict(key: str) -> InvalidRequest:
    """What is wrong with a key: its length, or the first character that it may not have."""
    code, limit = "LOCK_KEY_INVALID", f"1 to {STRICT_KEY_LENGTH} are allowed"
    if len(key) > STRICT_KEY_LENGTH:
        return InvalidRequest(
            f"key {shown(key)!r} has {len(key)} characters; {limit} by this service",
            code=code,
            hint="shorten it, for instance by a hash of its long part; the limit is that of the setting keys=strict",
        )
    if not key:
        return InvalidRequest(f"the key is empty; {limit}", code=code)
    place, wrong = next((at, sign) for at, sign in enumerate(key) if _STRICT_KEY.fullmatch(sign) is None)
    sign = "" if not wrong.isprintable() else f" {wrong!r}"
    return InvalidRequest(
        f"key {shown(key)!r} has the character{sign} U+{ord(wrong):04X} at position {place}; this service allows "
        "letters a to z and A to Z, digits, '.', '_', ':' and '-'",
        code=code,
        hint="write ':' in its place, or encode it; with the setting keys=any the service allows it",
    )


def _spelled(seconds: float) -> str:
    return f"{seconds:.10g} s"
