"""`leased run`: takes the key, runs the command under its lease, releases. The parts it is made of are beside it."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leased.checks import check_key, check_owner, check_ttl, seconds
from leased.cli.children import Command, Guard, find_command
from leased.cli.news import News
from leased.cli.output import Output, is_terminal, span
from leased.cli.parser import UsageError
from leased.cli.session import Session
from leased.cli.supervise import Ended, FixedLease, Held, Supervisor
from leased.cli.terminal import Terminal, wants_terminal
from leased.cli.waiting import ENDS_WAIT, Interrupted, obtain, watched
from leased.clocks import now
from leased.errors import InvalidRequest, LeasedError, LockLost, LockNotAcquired
from leased.model import Released
from leased.policy import CLOCK_MARGIN, DEFAULT_MAX_HOLD, FOREVER, usable

if TYPE_CHECKING:
    from leased import Handle, Locks
    from leased.observe import Event

_GRACE = 5.0
"""Seconds between TERM and KILL unless told otherwise; a third of a short ttl."""

_NOT_EXECUTABLE, _NOT_FOUND = 126, 127
_WORRYING = {
    "at_risk": "the store has not answered for a third of the ttl; the command will be ended if this goes on",
    "clock_warning": "a clock has jumped",
    "assurance_changed": "the store gives less than before; see `leased doctor`",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """What `leased run` was told, checked as far as that needs no store. Times are in seconds."""

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


def run(session: Session) -> int:
    """Run the command under the lease; its exit status, or one that says why it did not run, or not to its end."""
    plan = _plan(session)
    problem = find_command(plan.command[0], session.environment)
    if problem is not None:
        return _cannot_start(plan, problem, session.output)
    news = News()
    news.listen((*ENDS_WAIT, signal.SIGUSR1, signal.SIGUSR2))
    command = Command(plan.command, _environment(plan, session.environment), news=news)
    guard = Guard(command.pid, news=news)
    try:
        return _with_key(plan, session, command, news)
    finally:
        command.discard()
        guard.done()


def _with_key(plan: Plan, session: Session, command: Command, news: News) -> int:
    """Take the key, let the command run, release. Whatever happens, the command has ended before the key is free."""
    output, fixed_until = session.output, now() + usable(plan.ttl)
    try:
        with session.locks(observer=lambda event: _worry(event, output)) as locks:
            handle = _take(plan, locks, news)
            granted_at = now()
            try:
                handle.on_lost(lambda *_: news.poke())
                lease = FixedLease(handle, fixed_until) if plan.enforce else handle
                outcome = _under_lease(plan, lease, handle.fencing_token, command=command, news=news, output=output)
                lost = _loss(plan, outcome, handle, granted_at=granted_at)
            finally:
                command.discard()
                released = _release(handle, output) if command.started else _hand_back(handle, locks)
    except LockNotAcquired as error:
        return _busy(plan, error, output)
    except Interrupted as interrupted:
        output.talk(f"interrupted: {plan.key!r} was not taken, the command did not run")
        return 128 + interrupted.number
    if isinstance(outcome, OSError):
        return _cannot_start(plan, outcome, output)
    if lost is None and released is not None and not released:
        lost = f"the lease on {plan.key!r} had ended before the command did, and others may have run beside it"
    if lost is None:
        return outcome.status
    output.complain(f"{lost}; the command's exit status was {outcome.status}")
    output.hint("let writes carry LEASED_FENCING_TOKEN, and choose --ttl by the pauses you tolerate")
    return plan.exit_lost


def _take(plan: Plan, locks: Locks, news: News) -> Handle:
    """The key's lease, or the error or signal that ended the wait for it."""
    lock = locks.lock(
        plan.key,
        ttl=plan.ttl,
        owner=plan.owner,
        renew=not plan.enforce,
        max_hold=plan.max_hold,
        hold_at_least=plan.hold_at_least,
        lock_delay=plan.lock_delay,
        metadata={"command": os.path.basename(plan.command[0])[:100]},  # bytes that are no UTF-8 are fine
    )
    telling = watched(plan.key, lambda: locks.status(plan.key)) if plan.wait > 0 else contextlib.nullcontext()
    with telling:
        return obtain(lambda cancel: lock.acquire(wait=plan.wait, cancel=cancel), news=news)


def _under_lease(
    plan: Plan, lease: Held, fencing_token: int, *, command: Command, news: News, output: Output
) -> Ended | OSError:
    """Let the command run to its end; the error, if it could not be started."""
    terminal = Terminal()
    died = False
    try:
        if wants_terminal():
            terminal.hand_to(command.pid)
        problem = command.go(fencing_token)
        if problem is not None:
            return problem
        supervisor = Supervisor(
            command, lease, news=news, terminal=terminal, output=output, grace=plan.grace, ttl=plan.ttl
        )
        ended = supervisor.run()
        died = ended.died
        return ended
    finally:
        terminal.take_back(restore_modes=died)


def _loss(plan: Plan, outcome: Ended | OSError, handle: Handle, *, granted_at: float) -> str | None:
    """What is to be said about a lease that did not last as long as the command; `None` if it did."""
    try:
        handle.ensure_held()
    except LockLost as error:
        return error.message
    if isinstance(outcome, OSError) or not outcome.for_lease:
        return None
    if plan.enforce:
        cause = f"its {span(plan.ttl)} are over (--enforce)"
    elif now() + handle.remaining() > granted_at + usable(plan.max_hold) - 1.0:
        cause = f"--max-hold ({span(plan.max_hold)}) is over"
    else:
        cause = "the store did not answer its renewals"
    return f"the lease on {plan.key!r} was about to end, since {cause}; the command was ended in time"


def _release(handle: Handle, output: Output) -> Released | None:
    """Release; `None` if the store did not answer."""
    left = handle.remaining()
    try:
        return handle.release()
    except LeasedError as error:
        output.warn(f"the key could not be released ({error.message}); it is free in {span(left)} at the latest")
        return None


def _hand_back(handle: Handle, locks: Locks) -> Released:
    """Nothing ran: open the key at once, whatever `--hold-at-least` says of a run."""
    with contextlib.suppress(LeasedError):  # it ends by itself, and why nothing ran is the news
        handle.hand_over()
        locks.abandon(handle.key, handle.token)
    return Released()


def _busy(plan: Plan, error: LockNotAcquired, output: Output) -> int:
    """Somebody else has the key: one line that names it, the holder and the expiry; silence if that is a success."""
    if not plan.skip or is_terminal(sys.stderr):
        output.complain(f"the command did not run: {error.message}")
    return 0 if plan.skip else plan.exit_busy


def _cannot_start(plan: Plan, problem: OSError, output: Output) -> int:
    """The command is missing or is no program; the status is the one that shells use."""
    output.complain(f"cannot run {plan.command[0]!r}: {problem.strerror}")
    return _NOT_FOUND if problem.errno in {errno.ENOENT, errno.ENOTDIR} else _NOT_EXECUTABLE


def _worry(event: Event, output: Output) -> None:
    """Say at once what may end the command later."""
    words = _WORRYING.get(event.name)
    if words is not None:
        output.warn(f"key {event.key!r}: {words}" if event.key else words)


def _environment(plan: Plan, environment: Mapping[str, str]) -> dict[str, str]:
    """The command's environment: the public facts of the lease, and no handle of whoever started us."""
    kept = {name: value for name, value in environment.items() if name not in {"LEASED_HANDLE", "LEASED_OWNER"}}
    kept["LEASED_KEY"] = plan.key
    if plan.owner is not None:
        kept["LEASED_OWNER"] = plan.owner
    return kept


def _plan(session: Session) -> Plan:
    """The options, checked: whatever cannot work is refused before anything is started or asked for."""
    given, command = session.arguments, session.command
    usage = "usage: leased run KEY [options] -- COMMAND [ARGUMENT…]\n"
    if given.key is None and command and command[1:2] == ("--",):
        given.key, command = command[0], command[2:]  # `leased run -- -KEY -- COMMAND`: a key that looks like an option
    if given.key is None:
        raise UsageError("name the key to hold", usage)
    if not command:
        raise UsageError("put `--` and the command after the key and the options", usage)
    ttl = check_ttl(given.ttl, margin=CLOCK_MARGIN)
    wait = FOREVER if given.wait == "forever" else seconds(given.wait, what="--wait")
    max_hold = DEFAULT_MAX_HOLD if given.max_hold is None else seconds(given.max_hold, what="--max-hold")
    longest = ttl if given.enforce else min(ttl, max_hold) / 2
    grace = min(_GRACE, ttl / 3, max_hold / 3) if given.grace is None else seconds(given.grace, what="--grace")
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
        hold_at_least=seconds(given.hold_at_least, what="--hold-at-least"),
        max_hold=max_hold,
        lock_delay=seconds(given.lock_delay, what="--lock-delay"),
        enforce=given.enforce,
        grace=grace,
        skip=given.on_busy == "skip",
        exit_busy=exit_busy if exit_busy is not None else LockNotAcquired.exit_status,
        exit_lost=exit_lost if exit_lost is not None else LockLost.exit_status,
    )
