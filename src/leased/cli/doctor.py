"""`leased doctor`: says in plain words what a store gives, after trial leases on its own key. It mends nothing."""

from __future__ import annotations

import platform
import secrets
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from leased import __version__
from leased.cli.session import Session
from leased.cli.settings import Place
from leased.errors import LeasedError
from leased.model import Assurance
from leased.targets import hide_secrets

if TYPE_CHECKING:
    from leased import Handle, Locks

_PAIRS = 7
_CLOCK_TRIAL = 0.3
_CLOCK_TOLERANCE = 0.05
_SLOW = 0.25
_AHEAD = 2.0
_FOUND_WANTING = 1

_EXCLUSIVE = {
    "unknown": "nobody knows whom it excludes: the store's settings cannot be read",
    "volatile": "its locks can be gone without notice",
    "process": "it excludes threads of this process only",
    "host": "it excludes all processes of this host, and no other host",
    "until-failover": "it excludes everybody until a replica takes over, which may have missed leases",
    "primary": "it excludes everybody who uses this one server",
    "replicated": "it excludes everybody, also through the loss of a server",
    "region": "it excludes everybody in this region, also through the loss of servers",
    "consensus": "it excludes everybody, also through the loss of a minority of its servers",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: `ok`, a `warning`, or `bad` (then the exit status says so too)."""

    about: str
    grade: Literal["ok", "warning", "bad"]
    words: str


def doctor(session: Session) -> int:
    """Look at the store and say what there is to say; 0 if it can be used as it is."""
    place = session.place()
    findings = [*_surroundings(place), *_look(session, place)]
    for finding in findings:
        session.output.record(
            {"about": finding.about, "grade": finding.grade, "finding": finding.words},
            [(f"{finding.about:<12}", finding.words if finding.grade == "ok" else f"{finding.grade}: {finding.words}")],
        )
    return _FOUND_WANTING if any(finding.grade == "bad" for finding in findings) else 0


def _surroundings(place: Place) -> Iterator[Finding]:
    yield Finding("store", "ok", f"{hide_secrets(place.url)} (named by {place.named_by})")
    yield Finding(
        "versions",
        "ok",
        f"leased {__version__}, Python {platform.python_version()}, {platform.system()} {platform.release()}",
    )


def _look(session: Session, place: Place) -> Iterator[Finding]:
    """What a trial shows. A store that fails in the middle of it gets that as its last finding."""
    try:
        with session.locks(place) as locks:
            yield from _trial(locks)
            yield from _promises(locks.assurance)
    except LeasedError as error:
        yield Finding("answers", "bad", str(error))


def _trial(locks: Locks) -> Iterator[Finding]:
    """Take, look at and release leases on a key that nobody else uses."""
    lock = locks.lock(f"leased-doctor:{secrets.token_hex(8)}", ttl=30)
    first = lock.acquire()  # opens the store, which the measurements below are not about
    first.release()
    took: list[float] = []
    for _ in range(_PAIRS):
        began = time.perf_counter()
        handle = lock.acquire()
        handle.release()
        took.append(time.perf_counter() - began)
    yield Finding("answers", "ok", "a trial lease was taken and released")
    median = statistics.median(took)
    yield Finding(
        "latency",
        "ok" if median < _SLOW else "warning",
        f"{median * 1000:.1f} ms for taking and releasing (slowest of {_PAIRS}: {max(took) * 1000:.1f} ms)",
    )
    handle = lock.acquire()
    try:
        yield _clocks_agree(locks, handle)
    finally:
        handle.release()
    ahead = handle.fencing_token / 1e6 - time.time()
    if ahead > _AHEAD:
        yield Finding(
            "wall clock",
            "warning",
            f"fencing tokens, which still rise, are {ahead:.0f} s ahead of this clock: it is slow or was set back",
        )


def _clocks_agree(locks: Locks, handle: Handle) -> Finding:
    """Whether the store's clock and ours measured the same time between two looks at one lease.

    Each look may have been answered at any moment of its round trip, so that is no difference.
    """
    first, before = _compare(locks, handle)
    time.sleep(_CLOCK_TRIAL)
    second, after = _compare(locks, handle)
    drift = second - first
    tolerance = _CLOCK_TOLERANCE + before + after
    if abs(drift) > tolerance:
        return Finding("clock", "bad", f"the store's clock went {drift:+.3f} s wrong in {_CLOCK_TRIAL} s of this one")
    return Finding("clock", "ok", f"the store's clock goes as this one does (within {tolerance * 1000:.0f} ms)")


def _compare(locks: Locks, handle: Handle) -> tuple[float, float]:
    """How much more time the store gives to the lease than its handle believes in, and how long the look took."""
    asked_at = time.perf_counter()
    again = locks.restore(handle.dump())
    took = time.perf_counter() - asked_at
    more = again.remaining() - handle.remaining()
    again.hand_over()
    return more, took


def _promises(assurance: Assurance) -> Iterator[Finding]:
    """The store's own account of itself."""
    weak = assurance.exclusive in {"unknown", "volatile", "process"}
    words = _EXCLUSIVE.get(assurance.exclusive, assurance.exclusive)
    yield Finding("exclusion", "warning" if weak else "ok", f"{assurance.exclusive}: {words}")
    yield Finding("durability", "ok", assurance.durable)
    if assurance.early_loss:
        yield Finding("early loss", "warning", "a lease can end before its time without anybody having ended it")
    yield Finding("take-over", "ok", assurance.takeover)
    yield Finding("fencing", "ok", assurance.fence)
    yield Finding(
        "margin", "ok", f"a holder stops believing {assurance.clock_margin:.0%} of its lease (and 50 ms) early"
    )
    for note in assurance.notes:
        yield Finding("note", "ok", note)
