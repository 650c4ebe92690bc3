"""`leased acquire`, `renew` and `release`: a lease whose handle is kept by the caller. Nothing is renewed by itself."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from leased.checks import check_key
from leased.cli.output import milliseconds, span
from leased.cli.session import Session
from leased.cli.streams import is_terminal
from leased.cli.waiting import holder_words
from leased.errors import InvalidRequest, LockLost, LockNotHeld

if TYPE_CHECKING:
    from leased import Handle, Locks

_MAX_HANDLE = 16_384
_EXACTLY = "pass exactly what `leased acquire` printed"


def acquire(session: Session) -> int:
    """Take the key in one attempt and print the handle; a handle that cannot be printed is given back."""
    given = session.arguments
    with session.locks() as locks:
        lock = locks.lock(given.key, ttl=session.seconds("ttl"), owner=given.owner, renew=False)
        handle = lock.acquire(wait=0)
        try:
            text = handle.dump()
            facts = {
                "key": handle.key,
                "owner": handle.owner,
                "fencingToken": handle.fencing_token,
                "ttlMs": milliseconds(handle.ttl),
                "leftMs": milliseconds(handle.remaining()),
                "handle": text,
            }
            session.output.record(
                facts,
                [
                    ("key", handle.key),
                    ("owner", handle.owner),
                    ("fencing token", str(handle.fencing_token)),
                    ("lease ends", f"in {span(handle.remaining())} unless renewed"),
                    ("handle", text),
                ],
            )
        except BaseException:
            handle.release()
            raise
        handle.hand_over()
    return 0


def renew(session: Session) -> int:
    """Set the lease to end one ttl from now."""
    ttl = session.seconds("ttl")
    with session.locks() as locks:
        handle = _restored(session, locks)
        renewed = handle.renew(ttl)
        if not renewed:
            raise LockLost(
                f"the lease on {handle.key!r} was not renewed: it is over ({renewed.lost_reason or renewed.reason})",
                key=handle.key,
                reason=renewed.lost_reason or renewed.reason,
                hint=f"see who has it: leased status {handle.key}",
            )
        left = handle.remaining()
        session.output.record(
            {
                "key": handle.key,
                "renewed": True,
                "fencingToken": handle.fencing_token,
                "ttlMs": milliseconds(handle.ttl),
                "leftMs": milliseconds(left),
            },
            [("renewed", handle.key), ("lease ends", f"in {span(left)} unless renewed")],
        )
        handle.hand_over()
    return 0


def release(session: Session) -> int:
    """End the lease; a key that is by now free or somebody else's is left as it is."""
    with session.locks() as locks:
        handle = _restored(session, locks)
        released = handle.release()
    if not released:
        raise LockNotHeld(
            f"the lease on {handle.key!r} had ended before ({released.reason}): nothing was released",
            key=handle.key,
            reason=released.reason,
        )
    session.output.record(
        {"key": handle.key, "released": True, "fencingToken": handle.fencing_token}, [("released", handle.key)]
    )
    return 0


def _restored(session: Session, locks: Locks) -> Handle:
    """The handle that was passed, alive again; it has to be one of the key that was named."""
    text = _handle_text(session)
    key = check_key(session.arguments.key)
    try:
        handle = locks.restore(text)
    except LockNotHeld as error:
        raise _no_longer_held(error, locks) from error
    except InvalidRequest as error:
        raise InvalidRequest(error.message, hint=_EXACTLY) from None
    if handle.key != key:
        other = handle.key
        handle.hand_over()
        raise InvalidRequest(
            f"this is a handle of {other!r}, not of {key!r}: nothing was changed", hint="name the key it belongs to"
        )
    return handle


_ENDED = {
    "taken": "somebody else took the key since",
    "retaken": "the same owner took the key over since",
    "force_released": "it was ended by force",
    "max_hold": "it reached its max_hold",
}


def _no_longer_held(error: LockNotHeld, locks: Locks) -> LockNotHeld:
    """What is known of the end of the lease and of who has the key now, and no more than that."""
    how = _ENDED.get(error.reason, "it was released before, or ran out")
    return LockNotHeld(
        f"this handle does not hold {error.key!r}: {how}; the key is now {holder_words(locks.status(error.key))}",
        key=error.key,
        reason=error.reason,
    )


def _handle_text(session: Session) -> str:
    """The handle, also from the line that `acquire` prints: `--handle`, else `LEASED_HANDLE`, else the input."""
    text: str | None = session.arguments.handle
    if text is not None:
        session.output.warn("a handle in an argument can be seen by everybody on this machine")
    text = text or session.environment.get("LEASED_HANDLE")
    if text is None and sys.stdin is not None and not is_terminal(sys.stdin):
        text = sys.stdin.read(_MAX_HANDLE + 1)
    if text is None or not text.strip():
        raise InvalidRequest(
            "no handle was passed", hint="pipe in what `leased acquire` printed, or put it into LEASED_HANDLE"
        )
    if len(text) > _MAX_HANDLE:
        raise InvalidRequest("this is not the text of a handle", hint=_EXACTLY)
    return _inner(text.strip())


def _inner(text: str) -> str:
    """The handle in a line of JSON from `acquire`, or the text itself where it is no such line."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return text
    inner = line.get("handle") if isinstance(line, dict) else None
    return inner if isinstance(inner, str) else text
