"""`leased status`, `list` and `force-release`: what anyone may see of keys, and ending a lease without its handle."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from leased.cli.output import Output, local_time, milliseconds, moment, printable, span
from leased.cli.parser import UsageError
from leased.cli.session import Session
from leased.cli.streams import is_terminal, murmur
from leased.cli.waiting import holder_words
from leased.errors import InvalidRequest, StoreUnavailable
from leased.model import Status
from leased.policy import MAX_FENCING_TOKEN
from leased.targets import hide_secrets

_REFUSED = 1
_HEAD = ("KEY", "STATE", "OWNER", "HELD BY", "ENDS IN", "FENCING TOKEN")


def status(session: Session) -> int:
    """Show one key; the exit status does not depend on what it is."""
    given = session.arguments
    if given.key is None:
        raise UsageError("name the key to look at", given.parser.format_usage(), hint="leased list shows them all")
    with session.locks() as locks:
        seen = locks.status(session.arguments.key)
    session.output.record(as_json(seen), rows_of(seen))
    return 0


def list(session: Session) -> int:  # noqa: A001  # subcommands and their functions have one name
    """Show every key that is held or closed, in byte order."""
    return show_list(session, session.output)


def show_list(session: Session, output: Output) -> int:
    """What the store lists, as lines of JSON or as one table."""
    place, prefix = session.place(), session.arguments.prefix
    with session.locks(place) as locks:
        found = locks.list(prefix=prefix)
        if output.json:
            output.lines(as_json(seen) for seen in found)
            return 0
        lines = [_line(seen) for seen in found]
    if not lines:
        output.talk(f"{none_of(prefix)} is held or closed in {hide_secrets(place.url)}")
    output.table(_HEAD, lines)
    return 0


def none_of(prefix: str) -> str:
    """The words for no key at all, or none that begins like this."""
    return f"no key that begins with {prefix!r}" if prefix else "no key"


def force_release(session: Session) -> int:
    """End the lease that was shown, or open the closed key, after a yes; never the lease that came after it."""
    key, output = session.arguments.key, session.output
    wanted = session.whole_number("fencing_token", most=MAX_FENCING_TOKEN)
    with session.locks() as locks:
        try:
            seen = locks.status(key)
        except StoreUnavailable as error:
            if error.retryable:
                raise
            seen = Status(key, state="held")  # a record that cannot be read can be removed by its key alone
            output.warn(f"what is recorded of {key!r} cannot be read: {error.message}")
        if not seen.held:
            output.talk(f"{key!r} is free: there is nothing to release")
            return 0
        if wanted is not None and seen.fencing_token not in {None, wanted}:
            output.complain(f"{key!r} now has fencing token {seen.fencing_token}, not {wanted}: nothing was released")
            return _REFUSED
        output.talk(f"{key!r} is {holder_words(seen)}; fencing token {seen.fencing_token}")
        if not session.arguments.yes and not _confirmed():
            output.talk("nothing was released")
            return _REFUSED
        if not locks.force_release(key, fencing_token=seen.fencing_token if wanted is None else wanted):
            output.complain(f"{key!r} changed in the meantime: nothing was released")
            output.hint(f"look again: leased status {key}")
            return _REFUSED
    output.record(
        {"key": key, "forceReleased": True, "fencingToken": seen.fencing_token, "was": as_json(seen)},
        [("force-released", key), *_past(seen)],
    )
    return 0


def as_json(seen: Status) -> Mapping[str, Any]:
    """A status as JSON has it: names in camelCase, durations in integer milliseconds, instants in UTC."""
    return {
        "key": seen.key,
        "state": seen.state,
        "held": seen.held,
        "owner": seen.owner,
        "heldBy": seen.held_by,
        "expiresInMs": milliseconds(seen.expires_in),
        "expiresAt": moment(seen.expires_at),
        "freeInMs": milliseconds(seen.free_in),
        "freeAt": moment(seen.free_at),
        "fencingToken": seen.fencing_token,
        "acquiredAt": moment(seen.acquired_at),
        "waiters": seen.waiters,
        "metadata": dict(seen.metadata),
    }


def rows_of(seen: Status) -> Sequence[tuple[str, str | None]]:
    """A status as names and values for people; what is not known is left out."""
    expiry = None
    if seen.expires_in is not None:
        at = f" (at {local_time(seen.expires_at)})" if seen.expires_at is not None else ""
        expiry = f"in {span(seen.expires_in)}{at} unless renewed"
    return [
        ("key", seen.key),
        ("state", seen.state),
        ("owner", seen.owner),
        ("held by", seen.held_by),
        ("since", None if seen.acquired_at is None else local_time(seen.acquired_at)),
        ("lease ends", expiry),
        ("closed for", _closed_for(seen)),
        ("fencing token", None if seen.fencing_token is None else str(seen.fencing_token)),
        ("waiting", None if seen.waiters is None else str(seen.waiters)),
        *_metadata(seen),
    ]


def _past(seen: Status) -> Sequence[tuple[str, str | None]]:
    """A status that is over by force, so that nobody takes it for the present one."""
    return [
        ("was held by", seen.held_by),
        ("was closed for another", _closed_for(seen)),
        ("owner", seen.owner),
        ("since", None if seen.acquired_at is None else local_time(seen.acquired_at)),
        ("fencing token", None if seen.fencing_token is None else str(seen.fencing_token)),
        *_metadata(seen),
    ]


def _closed_for(seen: Status) -> str | None:
    return None if seen.state != "closed" or seen.free_in is None else span(seen.free_in)


def _metadata(seen: Status) -> Sequence[tuple[str, str]]:
    return [(f"  {name}", str(value)) for name, value in sorted(seen.metadata.items())]


def _line(seen: Status) -> tuple[str, ...]:
    """A status as one line of a table."""
    left = seen.expires_in if seen.state == "held" else seen.free_in
    return (
        seen.key,
        seen.state,
        seen.owner or "-",
        seen.held_by or "-",
        "-" if left is None else span(left),
        str(seen.fencing_token),
    )


def _confirmed() -> bool:
    """Whether somebody at a terminal said yes; without one this is an error, for scripts must say it up front."""
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        raise InvalidRequest("nobody is there to be asked, so nothing was released", hint="pass --yes")
    murmur(printable("leased: release it by force, while its work may go on? [y/N] "))
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
