"""Guarded updates with SQLAlchemy: a condition on the column that keeps the token. It never commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leased.clocks import step
from leased.errors import InvalidRequest
from leased.fences import _rule

if TYPE_CHECKING:
    from sqlalchemy import Connection, Update
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session


def guarded_update(session: Session | Connection, statement: Update, *, column: Any, fencing_token: int | None) -> bool:
    """Run an update of one row, and set its token with it, unless a later lease has written the row.

    `statement` is `update(…).where(…).values(…)` and names one row, by its primary key; `column` is where that table
    keeps the token, such as `Report.fencing_token`. Check and write are one statement. Objects of the session that
    show the row are not changed: refresh them. It belongs into a transaction, not under the isolation level
    `AUTOCOMMIT`. False: there is no such row.
    Raises `StaleFencingToken`, and then nothing was written; `InvalidRequest` without a token or `where`, and where
    that met several rows (roll back then). Make the column a `BigInteger`: in a text, what is no number is
    `InvalidRequest` on SQLite and an error of the driver on PostgreSQL and MySQL; a MySQL that is not strict takes it
    for 0, and writes.
    """
    guarded, look, token = _guarded(session, statement, column=column, fencing_token=fencing_token)

    async def run_write() -> int:
        return _changed(session.execute(guarded))

    async def run_look() -> list[Any]:
        return list(session.execute(look).scalars())

    return step(_rule.update(str(column), fencing_token=token, write=run_write, look=run_look, locked=_always))


async def guarded_update_async(
    session: AsyncSession | AsyncConnection, statement: Update, *, column: Any, fencing_token: int | None
) -> bool:
    """As `guarded_update`, on an asyncio session or connection."""
    guarded, look, token = _guarded(session, statement, column=column, fencing_token=fencing_token)

    async def run_write() -> int:
        return _changed(await session.execute(guarded))

    async def run_look() -> list[Any]:
        return list((await session.execute(look)).scalars())

    return await _rule.update(str(column), fencing_token=token, write=run_write, look=run_look, locked=_always)


def _always() -> bool:
    return True


def _changed(result: Any) -> int:
    return int(result.rowcount)


def _guarded(session: Any, statement: Update, *, column: Any, fencing_token: int | None) -> tuple[Any, Any, int]:
    """The statement with its guard, and the one that looks at the tokens of the same rows."""
    from sqlalchemy import BigInteger, and_, cast, or_, select

    token = _rule.presented(fencing_token)
    where = statement.whereclause
    if where is None:
        raise InvalidRequest("a guarded update needs where(): the row that is meant", hint="give its primary key")
    if getattr(statement, "_returning", ()):
        raise InvalidRequest("a guarded update cannot return rows", hint="select them afterwards")
    number = cast(column, BigInteger)  # SQLite would compare a column of text as text
    at_most = number <= token
    if (getattr(session, "dialect", None) or session.get_bind(clause=statement).dialect).name == "sqlite":
        at_most = and_(column == number, at_most)  # or any text would be a number
    guarded = statement.where(or_(column.is_(None), at_most)).values({column: token})
    guarded = guarded.execution_options(synchronize_session=False)  # or objects would show what was refused
    return guarded, select(column).where(where).with_for_update(), token
