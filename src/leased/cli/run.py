"""`leased run`: takes the key, runs the command under its lease, releases. The parts it is made of are beside it."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from typing import TYPE_CHECKING

from leased.cli.children import Command, Guard, find_command, how_to_start
from leased.cli.news import News
from leased.cli.output import Output, span
from leased.cli.plan import Plan, read_plan
from leased.cli.session import Session
from leased.cli.settings import Place
from leased.cli.streams import is_terminal
from leased.cli.supervise import Ended, FixedLease, Supervisor
from leased.cli.terminal import Terminal, interrupt_own_group, wants_terminal
from leased.cli.waiting import ENDS_WAIT, Interrupted, obtain, watched
from leased.clocks import now
from leased.errors import LeasedError, LockLost, LockNotAcquired
from leased.model import Released
from leased.policy import usable

if TYPE_CHECKING:
    from leased import Handle, Locks

_NOT_EXECUTABLE, _NOT_FOUND = 126, 127


def run(session: Session) -> int:
    """Run the command under the lease; its exit status, or one that says why it did not run, or not to its end."""
    plan, place = read_plan(session), session.place()
    problem = find_command(plan.command[0], session.environment)
    if problem is not None:
        return _cannot_start(plan, problem, session.output)
    news = News()
    news.listen((*ENDS_WAIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD))
    command = Command(plan.command, plan.environment(session.environment, url=place.to_pass_on()), news=news)
    guard = Guard(command.pid, news=news)
    this = _Run(plan, session, place, command=command, news=news)
    try:
        status = this.with_key()
    finally:
        command.discard()
        guard.done()
    if this.interrupted:
        interrupt_own_group()
    return status


class _Run:
    """One run: what its steps share."""

    def __init__(self, plan: Plan, session: Session, place: Place, *, command: Command, news: News) -> None:
        self._plan = plan
        self._session = session
        self._place = place
        self._output = session.output
        self._command = command
        self._news = news
        self.interrupted = False
        """Whether the command died of a Ctrl-C that only it was sent, because it had the terminal."""

    def with_key(self) -> int:
        """Take the key, let the command run, release. Whatever happens, the command ends before the key is free."""
        fixed_until = now() + usable(self._plan.ttl)
        try:
            with self._session.locks(self._place) as locks:
                handle = self._take(locks)
                granted_at = now()
                try:
                    handle.ensure_held()
                    outcome = self._under_lease(handle, fixed_until)
                    lost = _loss(self._plan, outcome, handle, granted_at=granted_at)
                finally:
                    self._command.discard()
                    released = self._release(handle) if self._command.started else _hand_back(handle, locks)
        except LockNotAcquired as error:
            return _busy(self._plan, error, self._output)
        except Interrupted as interrupted:
            self._output.talk(f"interrupted: {self._plan.key!r} was not taken, the command did not run")
            return 128 + interrupted.number
        if isinstance(outcome, OSError):
            return _cannot_start(self._plan, outcome, self._output)
        if lost is None and released is not None and not released:
            lost = f"the lease on {self._plan.key!r} had ended before the command did; others may have run beside it"
        if lost is None:
            return outcome.status
        self._output.complain(f"{lost}; the command's exit status was {outcome.status}")
        self._output.hint("let writes carry LEASED_FENCING_TOKEN, and choose --ttl by the pauses you tolerate")
        return self._plan.exit_lost

    def _take(self, locks: Locks) -> Handle:
        """The key's lease, or the error or signal that ended the wait for it."""
        plan = self._plan
        lock = locks.lock(
            plan.key,
            ttl=plan.ttl,
            owner=plan.owner,
            renew=not plan.enforce,
            max_hold=plan.max_hold,
            hold_at_least=plan.hold_at_least,
            lock_delay=plan.lock_delay,
            metadata={"command": os.path.basename(plan.command[0])[:100]},
        )
        telling = watched(plan.key, lambda: locks.status(plan.key)) if plan.wait > 0 else contextlib.nullcontext()
        with telling:
            return obtain(lambda cancel: lock.acquire(wait=plan.wait, cancel=cancel), news=self._news)

    def _under_lease(self, handle: Handle, fixed_until: float) -> Ended | OSError:
        """Let the command run to its end; the error, if it could not be started."""
        handle.on_lost(self._news.poke)
        lease = FixedLease(handle, fixed_until) if self._plan.enforce else handle
        terminal = Terminal()
        ended: Ended | None = None
        try:
            if wants_terminal():
                terminal.hand_to(self._command.pid)
            problem = self._command.go(handle.fencing_token)
            if problem is not None:
                return problem
            supervisor = Supervisor(
                self._command,
                lease,
                news=self._news,
                terminal=terminal,
                output=self._output,
                grace=self._plan.grace,
                ttl=self._plan.ttl,
            )
            ended = supervisor.run()
            return ended
        finally:
            had_terminal = terminal.take_back(restore_modes=ended is None or ended.killed_by > 0)
            if ended is not None:
                self.interrupted = had_terminal and ended.killed_by == signal.SIGINT and not ended.told

    def _release(self, handle: Handle) -> Released | None:
        """Release; `None` if the store did not answer."""
        left = handle.remaining()
        try:
            return handle.release()
        except LeasedError as error:
            self._output.warn(
                f"the key could not be released ({error.message}); it is free in {span(left)} at the latest"
            )
            return None


def _loss(plan: Plan, outcome: Ended | OSError, handle: Handle, *, granted_at: float) -> str | None:
    """What is to be said about a lease that did not last as long as the command; `None` if it did."""
    if isinstance(outcome, OSError):
        return None
    if not (outcome.for_lease and outcome.in_time):
        try:
            handle.ensure_held()
        except LockLost as error:
            return error.message
        if not outcome.for_lease:
            return None
    if plan.enforce:
        cause = f"its {span(plan.ttl)} are over (--enforce)"
    elif now() + handle.remaining() > granted_at + usable(plan.max_hold) - 1.0:
        cause = f"--max-hold ({span(plan.max_hold)}) is over"
    else:
        cause = "the store did not answer its renewals"
    return f"the lease on {plan.key!r} was about to end, since {cause}; the command was ended in time"


def _hand_back(handle: Handle, locks: Locks) -> Released:
    """Nothing ran: open the key at once, whatever `--hold-at-least` says of a run."""
    with contextlib.suppress(LeasedError):  # it may be lost already
        handle.hand_over()
    with contextlib.suppress(LeasedError):  # it ends by itself, and why nothing ran is the news
        locks.abandon(handle.key, handle.token)
    return Released()


def _busy(plan: Plan, error: LockNotAcquired, output: Output) -> int:
    """Somebody else has the key: one line that names it, the holder and the expiry, one that says what to do;
    silence if that is a success."""
    if not plan.skip or is_terminal(sys.stderr):
        output.complain(f"the command did not run: {error.message}")
        output.hint("a longer --wait would go on waiting" if plan.wait > 0 else "pass --wait TIME to wait for it")
    return 0 if plan.skip else plan.exit_busy


def _cannot_start(plan: Plan, problem: OSError, output: Output) -> int:
    """The command is missing or is no program; the status is the one that shells use."""
    output.complain(f"cannot run {plan.command[0]!r}: {problem.strerror}")
    output.hint(how_to_start(plan.command[0], problem))
    return _NOT_FOUND if problem.errno in {errno.ENOENT, errno.ENOTDIR} else _NOT_EXECUTABLE
