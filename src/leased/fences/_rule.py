"""The rule of every fence, without a database: lower is refused, equal passes, none is an error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from leased.checks import check_fencing_token, shown
from leased.errors import InvalidRequest, StaleFencingToken, StoreUnavailable


def presented(fencing_token: object) -> int:
    """The fencing token that a write brought along; raises `InvalidRequest` for `None` and for what is no token."""
    number = check_fencing_token(fencing_token)
    if number is None:
        raise InvalidRequest(
            "a guarded write needs a fencing token, and none was given",
            hint="pass handle.fencing_token, or leased.current_fencing_token() inside a block",
        )
    return number


def check(what: str, *, fencing_token: int, seen: int | None) -> None:
    """Raise `StaleFencingToken` if a higher one was seen."""
    if seen is not None and seen > fencing_token:
        raise StaleFencingToken(
            f"{shown(what)} was written under fencing token {seen}, so the lease with {fencing_token} is over; nothing "
            "was written",
            fencing_token=fencing_token,
            seen=seen,
            hint="stop: another holder has taken over",
        )


async def update(
    what: str,
    *,
    fencing_token: int,
    write: Callable[[], Awaitable[int]],
    look: Callable[[], Awaitable[list[int | None]]],
) -> bool:
    """Write by a statement whose condition is the rule; false if there is nothing to write to.

    `write` gives how many rows it changed (below 0: not known), `look` the tokens of the rows that it meant, as they
    are now. Some servers count no row that had the new values already: its token is ours then.
    """
    for _ in range(2):
        changed = await write()
        if changed > 1:
            raise InvalidRequest(
                f"a guarded update of {shown(what)} met {changed} rows and has to name one: roll back",
                hint="name the row by its primary key",
            )
        if changed == 1:
            return True
        tokens = await look()
        if not tokens:
            return False
        for seen in tokens:
            check(what, fencing_token=fencing_token, seen=seen)
        if all(seen == fencing_token for seen in tokens):
            return True
    raise StoreUnavailable(
        f"the database did not write to {shown(what)}, and no later lease has",
        applied=False,
        hint="look for a trigger that keeps rows as they are",
    )
