"""`leased schema`: prints what would make an SQL store's tables. It connects to nothing."""

from __future__ import annotations

from leased.cli.session import Session
from leased.cli.streams import write
from leased.clocks import BlockingClock
from leased.targets import Options, read_url, schema_of


def schema(session: Session) -> int:
    """Print the statements, ready for the database's own client."""
    write(schema_of(read_url(session.place().url, Options(BlockingClock()))))
    return 0
