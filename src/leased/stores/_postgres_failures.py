"""What PostgreSQL's errors mean for a lock: what happened, whether anything was changed, what to do next."""

from __future__ import annotations

import re
from typing import Any

from leased.checks import shown
from leased.errors import StoreNotUsable, StoreUnavailable
from leased.stores._drivers import driver
from leased.stores._sql_session import NoTables, RolledBack

STATEMENT_GONE = frozenset({"26000", "42P05"})
"""A prepared statement that is not there, or is there already: connections are shared by a pooler."""

LOCKED = "55P03"
TOO_LATE = "22P02"
"""How a release ends that waited until its lease had ended: it makes a number of a text (see `Statements.free`)."""

_UNDONE = frozenset({"40001", "40P01", "25P02", TOO_LATE}) | STATEMENT_GONE
_RACED = frozenset({"42P07", "23505", "42710", "XX000", "42P06"})
_SCHEMA = "make the tables with what 'leased schema URL' prints"
_ADVICE = {
    LOCKED: "somebody holds a lock on the row or the table: see pg_locks; then ask again",
    "57P01": "the server is shutting down or an administrator ended the connection: ask again",
    "57P03": "the server is starting or stopping: ask again",
    "25006": "this server is a standby, or the role or database has default_transaction_read_only: name the primary in"
    " the URL, or all hosts with target_session_attrs=read-write",
    "53100": "free some space on the server's disk",
    "53300": "raise max_connections of the server, lower leased_pool, or use a pooler",
    "57014": "the server's statement_timeout is shorter than a lock may take",
}
_UNUSABLE = {
    "42501": "grant SELECT, INSERT, UPDATE and DELETE on both tables to this role, or " + _SCHEMA,
    "42703": "the tables were made by another release: compare them with what 'leased schema URL' prints",
    "42804": "the tables were made by another release: compare them with what 'leased schema URL' prints",
    "42P10": "the table has no primary key (namespace, key): " + _SCHEMA,
    "3F000": "make that schema first, or choose another leased_table",
    "3D000": "make that database first",
    "42601": "please report this",
}


class Locked(StoreUnavailable):
    """Somebody else kept a row locked for longer than could be waited for. Nothing was changed."""


def code_of(result: Any) -> str:
    """The SQLSTATE of a failed result."""
    return _field(result, "SQLSTATE")


def from_result(result: Any, *, name: str, writes: bool) -> Exception:
    """What a failed result means. `writes` says whether what was sent could have been committed by then."""
    code = code_of(result)
    primary = _field(result, "MESSAGE_PRIMARY")
    severity = _field(result, "SEVERITY_NONLOCALIZED")
    message = f"{name} answered: {_readable(primary) or 'an error without a text'} ({code or 'no code'})"
    if code == "42P01":
        return NoTables(message)
    if code in _UNUSABLE:
        return StoreNotUsable(message, hint=_UNUSABLE[code])
    # An error undoes its transaction; an end of the connection may come after the commit.
    applied = None if writes and severity != "ERROR" else False
    kind = Locked if code == LOCKED else StoreUnavailable
    error = kind(message, applied=applied, hint=_ADVICE.get(code))
    return RolledBack(error) if code in _UNDONE and applied is False else error


def from_creating(result: Any, *, name: str) -> Exception | None:
    """What a failure to make the tables means; `None` where somebody else has just made them."""
    code = code_of(result)
    if code in _RACED:
        return None
    found = from_result(result, name=name, writes=False)
    if code == "42501":
        return StoreNotUsable(f"{name} has no tables for locks, and this role may not make them", hint=_SCHEMA)
    return found


def refused(message: bytes, *, name: str, password: bool) -> StoreUnavailable:
    """Why there is no connection. `password`: the server asked for one and there was none."""
    text = _readable(message.decode(errors="replace"))
    cause = f"{name} cannot be reached: {text}"
    if password:
        return StoreNotUsable(cause, hint="put the password into the URL, PGPASSWORD or ~/.pgpass")
    if "no pg_hba.conf entry" in text:
        return StoreNotUsable(cause, hint="let this user connect from here (pg_hba.conf of the server)")
    if "authentication failed" in text or ('role "' in text and "does not exist" in text):
        return StoreNotUsable(cause, hint="check user and password")
    if 'database "' in text and "does not exist" in text:
        return StoreNotUsable(cause, hint="make that database first, or name another one in the URL")
    return StoreUnavailable(cause, applied=False, hint="see that the server runs and takes connections: ask again")


def cut_off(*, name: str, seconds: float, writes: bool) -> StoreUnavailable:
    """No answer in time."""
    return StoreUnavailable(f"{name} did not answer within {seconds:.2g} s", applied=None if writes else False)


def broken(error: Exception, *, name: str, writes: bool) -> StoreUnavailable:
    """The connection ended before the answer came."""
    return StoreUnavailable(f"{name} ended the connection: {_readable(str(error))}", applied=None if writes else False)


def _readable(text: str) -> str:
    """What the library or server says, on one line, without where that was: the caller names the server already."""
    text = re.sub(r"^connection to server .*? failed: ", "", " ".join(text.split()))
    return "".join(shown(text[start : start + 80]) for start in range(0, min(len(text), 400), 80))


def _field(result: Any, name: str) -> str:
    fields = driver("psycopg.pq", extra="postgres").DiagnosticField
    return (result.error_field(fields[name]) or b"").decode(errors="replace")
