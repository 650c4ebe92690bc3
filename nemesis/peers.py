"""Two common lock libraries for Redis behind the words of a hand, with their settings as they are. They are not ours.

Neither tells its holder until when it holds. Here a holder believes as its careful user would: from the answer of
`acquire` or `extend` on for the time that it asked for, less the same margin as ours, unless it releases or a call says
that it no longer holds; one that the library renews, until then. Neither has fencing tokens; what stands in their
place, to put grants in order, is the time of the answer, and nobody judges it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from leased.errors import LockNotAcquired, StoreUnavailable
from nemesis.run import usable

REQUIREMENTS = ("redis==8.1.0", "python-redis-lock==4.0.1")

UNJUDGED = frozenset({"fencing", "guard", "resurrection", "errors", "clock", "available", "bounded"})
"""Checks of what they never promised."""

TTLS = (1.0, 2.0)
"""Whole seconds, as one of them wants."""


def connect(peer: str, url: str, *, timeout: float) -> Any:
    """The locks of this library at a URL, spelt as ours."""
    import redis

    client = redis.Redis.from_url(url.replace("valkey://", "redis://"), socket_timeout=timeout)
    return SimpleNamespace(lock=_LOCKS[peer](client), assurance=SimpleNamespace(exclusive="primary", early_loss=False))


class _Recipe:
    """A lock as a hand asks for it; `make` makes one of the library."""

    def __init__(self, make: Callable[[], Any], key: str, *, ttl: float, wait: float) -> None:
        self.key = key
        self._make = make
        self._ttl = ttl
        self._wait = min(wait, ttl)  # more than that one of them refuses

    def try_acquire(self, *, token: str | None = None) -> Any:
        """A handle, or `None`."""
        return self._acquire(blocking=False)

    def acquire(self, *, token: str | None = None) -> Any:
        """A handle, or `LockNotAcquired`."""
        handle = self._acquire(blocking=True)
        if handle is None:
            raise LockNotAcquired("busy")
        return handle

    def _acquire(self, *, blocking: bool) -> Any:
        lock = self._make()
        with _errors():
            got = lock.acquire(timeout=self._wait) if blocking else lock.acquire(blocking=False)
        return _Handle(lock, self._ttl) if got else None


class _Handle:
    """What its user knows."""

    def __init__(self, lock: Any, ttl: float) -> None:
        self._lock = lock
        self._ttl = ttl
        self._until = _now() + usable(ttl)
        self._gone = False
        self.token = uuid.uuid4().hex
        self.fencing_token = time.time_ns() // 1000

    @property
    def lost(self) -> bool:
        """Whether it was told so, or its time is over."""
        return self._gone or (not _renews(self._lock) and _now() >= self._until)

    @property
    def lost_reason(self) -> str | None:
        """Why."""
        return "expired" if self.lost else None

    def remaining(self) -> float:
        """How long it believes. One that the library renews believes on while it is not told."""
        return self._ttl if _renews(self._lock) and not self._gone else max(self._until - _now(), 0.0)

    def renew(self) -> Any:
        """Ask for more time."""
        with _errors() as failed:
            self._lock.extend(*_more(self._lock, self._ttl))
            self._until = _now() + usable(self._ttl)
        self._gone = self._gone or bool(failed)
        return _Outcome("lease_lost" if failed else "", lost_reason="expired" if failed else None)

    def release(self) -> Any:
        """Let it go."""
        with _errors() as failed:
            self._lock.release()
        self._gone = self._gone or bool(failed)
        return _Outcome("not_holder" if failed else "", lost_reason=None)


class _Outcome:
    """True if there is no reason against it."""

    def __init__(self, reason: str, *, lost_reason: str | None) -> None:
        self.reason = reason
        self.lost_reason = lost_reason

    def __bool__(self) -> bool:
        return not self.reason


@contextmanager
def _errors() -> Iterator[list[str]]:
    """What says that it is not held is collected; an unreachable server is unknown, as with ours."""
    import redis

    failed: list[str] = []
    try:
        yield failed
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise StoreUnavailable(str(error), applied=None) from error
    except Exception as error:
        if type(error).__name__ not in ("LockNotOwnedError", "NotAcquired"):
            raise
        failed.append(str(error))


def _redis_py(client: Any) -> Callable[..., _Recipe]:
    def lock(key: str, *, ttl: float, wait: float, renew: bool, name: str) -> _Recipe:
        return _Recipe(lambda: _RedisPy(client.lock(key, timeout=ttl)), key, ttl=ttl, wait=wait)

    return lock


class _RedisPy:
    """`acquire` of redis-py takes its wait by another name."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self.extend, self.release = lock.extend, lock.release

    def acquire(self, *, blocking: bool = True, timeout: float | None = None) -> bool:
        """Whether it got the lock."""
        return bool(self._lock.acquire(blocking=blocking, blocking_timeout=timeout))


def _python_redis_lock(client: Any) -> Callable[..., _Recipe]:
    import redis_lock  # type: ignore[import-not-found,unused-ignore]

    def lock(key: str, *, ttl: float, wait: float, renew: bool, name: str) -> _Recipe:
        return _Recipe(
            lambda: redis_lock.Lock(client, key, expire=int(ttl), auto_renewal=renew), key, ttl=ttl, wait=wait
        )

    return lock


def _renews(lock: Any) -> bool:
    """Whether the library renews this one by itself."""
    return getattr(lock, "_lock_renewal_interval", None) is not None


def _more(lock: Any, ttl: float) -> tuple[Any, ...]:
    return (ttl, True) if isinstance(lock, _RedisPy) else ()


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


_LOCKS: dict[str, Callable[[Any], Callable[..., _Recipe]]] = {
    "redis-py": _redis_py,
    "python-redis-lock": _python_redis_lock,
}
PEERS = tuple(_LOCKS)
"""Their names."""


def rounds(peer: str) -> dict[str, int]:
    """What a hand does with it: what it has."""
    return {"handle": 12} | ({"kept": 6} if peer == "python-redis-lock" else {})
