"""The blocks that enclose the running code: a context variable that follows threads' calls and async tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from leased.checks import check_owner
from leased.hold import Hold


class Block:
    """One block under a lease: which lock and line it belongs to, who runs it and where it was entered."""

    __slots__ = ("handle", "hold", "left", "lines", "lock", "parent", "runner", "taken_at")

    def __init__(self, *, lock: object, lines: object, hold: Hold, handle: Any, runner: object, taken_at: str) -> None:
        self.lock = lock
        self.lines = lines
        self.hold = hold
        self.handle = handle
        self.runner = runner
        self.taken_at = taken_at
        self.left = False
        self.parent: Block | None = None


_innermost: ContextVar[Block | None] = ContextVar("leased_innermost_block", default=None)
_owner: ContextVar[str | None] = ContextVar("leased_owner", default=None)


def innermost() -> Block | None:
    """The innermost block that encloses the running code and was not left yet."""
    block = _innermost.get()
    while block is not None and block.left:
        block = block.parent
    return block


def enter(block: Block) -> None:
    """Make this the innermost block."""
    block.parent = innermost()
    _innermost.set(block)


def leave(block: Block) -> None:
    """This block is over, in whatever order blocks are left."""
    block.left = True
    _innermost.set(innermost())


def enclosing(lines: object, key: str, runner: object) -> Block | None:
    """The block of the same thread or task that holds this key of this store now, if any."""
    block = innermost()
    while block is not None:
        if not block.left and block.hold.key == key and block.lines is lines and block.runner == runner:
            return block
        block = block.parent
    return None


def entered_through(lock: object, runner: object) -> Block | None:
    """The innermost block of this thread or task that was entered through this lock, if any."""
    block = innermost()
    while block is not None and (block.left or block.lock is not lock or block.runner != runner):
        block = block.parent
    return block


def current() -> Any:
    """The handle of the innermost block that encloses the running code, lost or not; `None` outside of any."""
    block = innermost()
    return block.handle if block is not None else None


def current_fencing_token() -> int | None:
    """The fencing token of the innermost block that encloses the running code; `None` outside of any."""
    block = innermost()
    return block.hold.fencing_token if block is not None else None


def scoped_owner() -> str | None:
    """The owner that `owner_scope` names for the running code."""
    return _owner.get()


@contextmanager
def owner_scope(owner: str) -> Iterator[None]:
    """Locks taken inside use this owner unless they name one: every slice of a run takes over what an earlier one left.

    Name the run (a task id), never a constant: whoever presents the same owner takes the lease over.
    """
    token = _owner.set(check_owner(owner))
    try:
        yield
    finally:
        _owner.reset(token)
