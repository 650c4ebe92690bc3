"""What both faces' handles have in common: facts read from the hold and the clock. It never asks a store."""

from __future__ import annotations

import json
import warnings
from contextlib import suppress
from typing import Any

from leased.checks import check_key, check_owner, shown
from leased.errors import InvalidRequest
from leased.hold import Hold
from leased.model import LostReason
from leased.observe import log
from leased.policy import MAX_FENCING_TOKEN
from leased.recipe import check_token
from leased.store import Clock

_DUMP_VERSION = 1
_MAX_DUMP = 4096


class HandleFacts:
    """A lease that is alive in this process. Any thread or task that has it may read, renew and release it."""

    __slots__ = ("__weakref__", "_clock", "_hold", "_scoped")

    _hold: Hold
    _clock: Clock
    _scoped: bool

    @property
    def key(self) -> str:
        """What is locked."""
        return self._hold.key

    @property
    def token(self) -> str:
        """The secret that proves the hold. It is not shown by `repr`."""
        return self._hold.token

    @property
    def fencing_token(self) -> int:
        """A public number that rises with every grant of the key; pass it along with every guarded write."""
        return self._hold.fencing_token

    @property
    def owner(self) -> str | None:
        """The public label of the work, if it was named."""
        return self._hold.owner

    @property
    def ttl(self) -> float:
        """The length of the lease in seconds, as last asked for."""
        return self._hold.ttl

    @property
    def lost(self) -> bool:
        """Whether the lease is known to have ended before its release: at its deadline by the local clock, not later.
        A forced release or a re-take is learned from the next renewal, and from nothing where nobody renews."""
        return self.lost_reason is not None

    @property
    def lost_reason(self) -> LostReason | None:
        """Why it is lost: `taken`, `retaken`, `expired`, `force_released`, `max_hold`, `denied`, `store_lost`,
        `forked`, `closed` or `handed_over`; `None` while held and after a release."""
        return self._hold.lost_reason(self._clock.now())

    @property
    def expired(self) -> bool:
        """Whether its time is over by the local clock, released or not."""
        return self._clock.now() >= self._hold.valid_until

    def remaining(self) -> float:
        """Seconds for which this process may still believe in the lease, after the clock margins; 0 once it is over."""
        return self._hold.remaining(self._clock.now())

    def ensure_held(self) -> None:
        """Return while the lease is believed to be held, as `lost` says; raise `LockLost` once it is lost, and
        `LockNotHeld` after a release. It asks nobody."""
        self._hold.check(self._clock.now())

    def dump(self) -> str:
        """The handle as text, for `restore` elsewhere. It contains the token: treat it as a secret."""
        hold = self._hold
        return json.dumps(
            {
                "leased": _DUMP_VERSION,
                "secret": True,
                "key": hold.key,
                "token": hold.token,
                "fencingToken": hold.fencing_token,
                "owner": hold.owner,
            }
        )

    def __repr__(self) -> str:
        """The public facts; never the token."""
        reason = self.lost_reason
        state = f"lost ({reason})" if reason else "released" if self._hold.ended else f"{self.remaining():.1f} s left"
        return f"<leased handle on {shown(self.key)!r}, fencing token {self.fencing_token}, {state}>"

    def __reduce__(self) -> str:
        """Refuse to be pickled or copied: a copy would renew and release beside this one."""
        raise TypeError("a live handle cannot be pickled or copied; use handle.dump() and locks.restore(text)")

    def __del__(self) -> None:
        """A forgotten handle is no longer renewed and ends with its ttl; say so once."""
        hold = getattr(self, "_hold", None)
        if hold is None or hold.ended is not None or hold.forked:
            return
        hold.forgotten = True
        if self._scoped or self.remaining() <= 0:
            return
        hold.renewing = False
        log.warning("a handle on %r was dropped without release: it is not renewed and ends by itself", hold.key)
        warnings.warn(f"a leased handle on {hold.key!r} was dropped without release()", ResourceWarning, stacklevel=2)


def read_dump(text: object) -> dict[str, Any]:
    """The checked contents of a dumped handle; raises `InvalidRequest`, which never holds the token."""
    hint = "pass exactly what handle.dump() or `leased acquire` gave"
    if not isinstance(text, str) or len(text) > _MAX_DUMP:
        raise InvalidRequest("this is not the text of a handle", hint=hint)
    value: object = None
    with suppress(ValueError, RecursionError):  # the error of the parser would carry the whole text along
        value = json.loads(text)
    if value is None:
        raise InvalidRequest("this is not the text of a handle", hint=hint)
    if not isinstance(value, dict) or value.get("leased") != _DUMP_VERSION:
        raise InvalidRequest("this is not the text of a handle of this version", hint=hint)
    fencing_token = value.get("fencingToken")
    if type(fencing_token) is not int or not 0 < fencing_token <= MAX_FENCING_TOKEN:
        raise InvalidRequest("this text of a handle is damaged", hint=hint)
    return {
        "key": check_key(value.get("key")),
        "token": check_token(value.get("token")),
        "owner": check_owner(value.get("owner")),
    }
