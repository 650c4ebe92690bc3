"""How a block under a lease begins and ends, as pure decisions shared by both faces. It asks no store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, Generic, Protocol, TypeVar

from leased import context
from leased.env import Env
from leased.errors import LeaseDeadlineExceeded, LeasedError, LockDeadlock, LockNotHeld
from leased.hold import Hold, lost_error
from leased.model import LostReason
from leased.observe import log
from leased.recipe import Recipe

T = TypeVar("T")


class Entered(Protocol):
    """A manager of a block; it has a handle once it was entered."""

    @property
    def handle(self) -> Any:
        """The handle of the block."""
        ...


S = TypeVar("S", bound=Entered)

_PASSED_THROUGH = (__name__.partition(".")[0], "contextlib")


class Cancel(Protocol):
    """Whatever ends a wait from another thread: a `threading.Event` will do."""

    def is_set(self) -> bool:
        """Whether the wait is to end."""
        ...


NOTHING_TO_FREE = ("taken", "retaken", "force_released", "forked", "handed_over")
"""Reasons of a loss after which a release has nothing to do."""


def refuse_deadlock(lines: object, key: str, runner: object) -> None:
    """Raise `LockDeadlock` if a block of this thread or task, which encloses the caller, holds the key."""
    block = context.enclosing(lines, key, runner)
    if block is not None and not block.handle.lost:
        raise LockDeadlock(
            f"waiting for {key!r} would never end: this thread or task took it at {block.taken_at} and is still inside",
            key=key,
            taken_at=block.taken_at,
            hint="pass the handle on, or take the key once",
        )


def place_of(frame: FrameType) -> str:
    """file:line of where a block is written, for messages: the caller's own line, not one in here."""
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _PASSED_THROUGH:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def being_left(scopes: Sequence[S], block: context.Block | None, *, key: str) -> S:
    """Which of the blocks that were entered through one shared lock is being left.

    It is the caller's own, innermost `block`. One that is left by another thread or task than entered it cannot be told
    from others: then it is a lost one, if there is any, so that nobody frees the block of the next holder.
    """
    entered = [scope for scope in reversed(scopes) if scope.handle is not None and scope.handle._block is not None]
    if not entered:
        raise LockNotHeld(f"no block of this lock on {key!r} was entered", key=key, hint="leave it once")
    own = [scope for scope in entered if block is not None and scope.handle._block is block]
    lost = [scope for scope in entered if scope.handle.lost]
    return (own or lost or entered)[0]


def hand_over(env: Env, hold: Hold) -> None:
    """End a hold on purpose: it is lost here (`handed_over`), and nobody keeps it any more."""
    if hold.end("handed_over"):
        env.tell("handed_over", hold.key, lock=hold.name, data={"fencing_token": hold.fencing_token})
    if hold.keeper is not None:
        hold.keeper.discard(hold)


def ending_error(
    recipe: Recipe | None, hold: Hold, *, error: BaseException | None, lost: LostReason | None, returns: bool
) -> LeasedError | None:
    """What a block raises at its end instead of, or on top of, what its body raised; `None`: nothing.

    | body | lease | answer |
    | --- | --- | --- |
    | any | an enforced one ran out | `LeaseDeadlineExceeded` |
    | failed | lost | `LockLost`, to be chained from the body's error |
    | succeeded | lost | `LockLost`, but `None` if `returns` (`run()`, or `if_lost="return"`) |
    | any | held to the end, or handed over on purpose | `None` |
    """
    if lost is None or lost == "handed_over":
        return None
    if recipe is not None and recipe.enforce and lost in ("expired", "max_hold"):
        return LeaseDeadlineExceeded(
            f"the enforced lease on {hold.key!r} ran out after {recipe.ttl:g} s and its body was interrupted",
            key=hold.key,
            reason=lost,
            hint="give it a longer ttl, or do less in the body",
        )
    if error is None and returns:
        return None
    return lost_error(hold.key, lost)


def note_release_problem(hold: Hold, problem: LeasedError, *, error: BaseException | None) -> None:
    """A release that failed never replaces what the body raised: it is attached as a note, and logged."""
    text = f"the lease on {hold.key!r} could not be released ({problem}); it ends by itself"
    log.warning("%s", text)
    if error is not None:
        error.add_note(text)


class RunResult(Generic[T]):
    """What `run` gives: it unpacks as `(ran, value)` and is true if the function ran.

    `ran` is false when the key was not granted: then the function was not called and `value` is `None`. `lost` says
    that the lease ended before the function did; `handle` is the handle it ran under.
    """

    __slots__ = ("handle", "lost", "ran", "value")

    def __init__(self, *, ran: bool, value: T | None, lost: bool, handle: Any) -> None:
        self.ran: bool = ran
        self.value: T | None = value
        self.lost: bool = lost
        self.handle: Any = handle

    def __iter__(self) -> Iterator[Any]:
        """`ran, value`."""
        return iter((self.ran, self.value))

    def __bool__(self) -> bool:
        """Whether the function ran."""
        return self.ran

    def __repr__(self) -> str:
        """The result as it unpacks."""
        return f"RunResult(ran={self.ran}, value={self.value!r}, lost={self.lost})"
