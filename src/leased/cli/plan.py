"""What `leased run` was told, checked as far as that needs no store. It starts nothing and asks for nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from leased.checks import check_key, check_owner, check_ttl
from leased.cli.parser import PUT_DASHES, UsageError
from leased.cli.session import Session
from leased.errors import InvalidRequest, LockLost, LockNotAcquired
from leased.policy import CLOCK_MARGIN, DEFAULT_MAX_HOLD, DEFAULT_TTL, FOREVER

_GRACE = 5.0
"""Seconds between TERM and KILL unless told otherwise; a third of a short ttl."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One run of a command under a lease. Times are in seconds."""

    key: str
    command: tuple[str, ...]
    ttl: float
    wait: float
    owner: str | None
    hold_at_least: float
    max_hold: float
    lock_delay: float
    enforce: bool
    grace: float
    skip: bool
    exit_busy: int
    exit_lost: int

    def environment(self, ours: Mapping[str, str], *, url: str | None) -> dict[str, str]:
        """The command's environment: ours with the public facts of the lease, and no handle of whoever started us.

        `url`: the store, for what the command itself asks of leased; `None` where ours stays as it is.
        """
        theirs = {name: value for name, value in ours.items() if name not in {"LEASED_HANDLE", "LEASED_OWNER"}}
        theirs["LEASED_KEY"] = self.key
        if url is not None:
            theirs["LEASED_URL"] = url
        if self.owner is not None:
            theirs["LEASED_OWNER"] = self.owner
        return theirs


def read_plan(session: Session) -> Plan:
    """The options, checked: whatever cannot work is refused before anything is started or asked for."""
    given, command = session.arguments, session.command
    if given.key is None and command and command[1:2] == ("--",):
        given.key, command = command[0], command[2:]  # `leased run -- -KEY -- COMMAND`: a key that looks like an option
    if given.key is None:
        raise UsageError("name the key to hold", given.parser.format_usage())
    if not command:
        raise UsageError(PUT_DASHES, given.parser.format_usage())
    grace = session.seconds("grace")
    ttl = check_ttl(session.seconds("ttl", otherwise=max(DEFAULT_TTL, 3 * grace)), margin=CLOCK_MARGIN)
    wait = FOREVER if given.wait == "forever" else session.seconds("wait")
    max_hold = session.seconds("max_hold", otherwise=DEFAULT_MAX_HOLD)
    longest = ttl if given.enforce else min(ttl, max_hold) / 2
    if given.grace is None:
        grace = min(_GRACE, ttl / 3, max_hold / 3)
    if grace > longest:
        raise InvalidRequest(
            f"--grace {grace:g} s does not fit into a lease of {ttl:g} s: at most {longest:g} s",
            hint="the command is sent TERM that long before a lease that cannot be renewed ends; choose a longer --ttl",
        )
    if given.enforce and wait >= ttl:
        raise InvalidRequest(
            f"--enforce counts the ttl ({ttl:g} s) from the moment of asking, so --wait ({wait:g} s) must be shorter"
        )
    exit_busy, exit_lost = (session.whole_number(name, most=255) for name in ("exit_busy", "exit_lost"))
    return Plan(
        key=check_key(given.key),
        command=command,
        ttl=ttl,
        wait=wait,
        owner=check_owner(given.owner),
        hold_at_least=session.seconds("hold_at_least"),
        max_hold=max_hold,
        lock_delay=session.seconds("lock_delay"),
        enforce=given.enforce,
        grace=grace,
        skip=given.on_busy == "skip",
        exit_busy=exit_busy if exit_busy is not None else LockNotAcquired.exit_status,
        exit_lost=exit_lost if exit_lost is not None else LockLost.exit_status,
    )
