"""The rule of every fence, without a database: lower is refused, equal passes, none is an error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

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
    look: Callable[[], Awaitable[list[Any]]],
    locked: Callable[[], bool],
) -> bool:
    """Write by a statement whose condition is the rule; false if there is nothing to write to.

    `write` gives how many rows it changed (below 0: not known), `look` the tokens of the rows that it meant, as they
    are now. Some servers count no row that had the new values already: its token is ours then. `locked`: whether
    what was written stays as it is until the caller ends a transaction.

    | changed | seen afterwards | answer |
    | --- | --- | --- |
    | several | | refused |
    | any | several rows | refused: the others were not written, or only some of them |
    | one | ours, or none: the write changed what the row is named by | true |
    | one | another token | refused if `locked`, for it is another row; else a later lease has overwritten it: true |
    | none | none | false |
    | none | a higher one | `StaleFencingToken` |
    | none | ours | true |
    | none | another | tried once more: it was locked by somebody who has just rolled back |
    """
    for _ in range(2):
        changed = await write()
        tokens = [] if changed > 1 else [_number(seen) for seen in await look()]
        if changed > 1 or len(tokens) > 1 or (changed == 1 and tokens not in ([], [fencing_token]) and locked()):
            raise InvalidRequest(
                f"a guarded update of {shown(what)} met several rows and has to name one: roll back",
                hint="name the row by its primary key",
            )
        if changed == 1:
            return True
        if not tokens:
            return False
        check(what, fencing_token=fencing_token, seen=tokens[0])
        if tokens == [fencing_token]:
            return True
    raise StoreUnavailable(
        f"the database did not write to {shown(what)}, and no later lease has",
        applied=False,
        hint="look for a trigger that keeps rows as they are",
    )


def _number(seen: Any) -> int | None:
    """A token as it was found, whatever kind of number or text the column keeps it as."""
    try:
        return None if seen is None else int(seen)
    except (TypeError, ValueError):
        raise InvalidRequest(
            f"the column of the fencing token holds {shown(seen)!r}, which is none", hint="make it a BIGINT"
        ) from None
