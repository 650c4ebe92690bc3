"""Rows of databases, written by whoever can write there: a record, or none; status never fails on it."""

from fuzz.given import object_of
from leased.model import read_metadata
from leased.stores import _sql_rules as rules
from leased.stores._sql_record import Seen
from leased.stores._sqlite_record import over_at, record_in

_LEAST, _MOST = -(2**63), 2**63 - 1


def check(data: bytes) -> None:
    """Nothing is raised, for values of any type and size that SQLite can hold, and a foreign row grants nothing."""
    read_metadata(data.decode("utf-8", "replace"))
    row = (object_of(data) or {}).get("row")
    if not isinstance(row, list) or len(row) != 18:
        return
    columns = [_as_stored(value) for value in row]
    columns[1:4] = [value if isinstance(value, bytes) else b"" for value in columns[1:4]]
    record = record_in(columns, boot=1, wall=0)
    if record is None:
        return
    over_at(record)
    seen = Seen(record, None, 0)
    for now in (0, record.expires_at):
        status = rules.status(seen, key="k")
        assert status.held == (record.held(0) or record.closed(0))
        assert not record.held(now) or now < record.expires_at


def _as_stored(value: object) -> object:
    if isinstance(value, bool) or (isinstance(value, int) and not _LEAST <= value <= _MOST):
        return 0
    return value.encode("utf-8", "replace")[:32].ljust(32, b"\0") if isinstance(value, str) else value
