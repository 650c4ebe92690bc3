"""What a PostgreSQL server, as configured now, gives: asked once for every new connection."""

from __future__ import annotations

from typing import Any

from leased.model import Assurance
from leased.stores._postgres_statements import Statement
from leased.stores._postgres_wire import Wire

_QUESTION = Statement(
    b"""SELECT pg_backend_pid()::text, pg_is_in_recovery()::text, current_setting('fsync'),
    current_setting('full_page_writes'), current_setting('synchronous_commit'),
    current_setting('synchronous_standby_names'), current_setting('server_version')""",
    (),
    writes=False,
    name=b"leased_assurance",
)


async def read_server(wire: Wire, until: float, *, clock_margin: float) -> Assurance:
    """Ask a new connection what the server gives, and see whether a pooler is in between."""
    result = await wire.ask(_QUESTION, (), until=until)
    backend, standby, fsync, full_pages, commit, standbys, version = (
        result.get_value(0, column).decode() for column in range(7)
    )
    # A pooler tells a number of its own. Behind it every transaction may meet another server process.
    wire.prepares = str(wire.connection.backend_pid) == backend
    notes = [f"PostgreSQL {version}"]
    if not wire.prepares:
        notes.append("through a pooler: releases may be noticed by polling only")
    if standby == "true":
        notes.append("connected to a standby, which can grant nothing")
    return _weigh(
        {"fsync": fsync, "full_page_writes": full_pages, "synchronous_commit": commit}, standbys, notes, clock_margin
    )


def _weigh(settings: dict[str, str], standbys: str, notes: list[str], clock_margin: float) -> Assurance:
    off = [name for name, value in settings.items() if value == "off"]
    replicated = bool(standbys) and settings["synchronous_commit"] not in ("off", "local")
    if off:
        notes.append(f"{' and '.join(off)} = off: a crash of the server can lose leases that were granted")
    elif not replicated:
        notes.append("a fail-over to a standby can lose the leases granted last: it has no synchronous standby")
    exclusive: Any = "until-failover" if not off and not replicated else "replicated" if not off else "volatile"
    return Assurance(
        exclusive=exclusive,
        early_loss=bool(off) or not replicated,
        durable=(
            "a crash of the server or its machine can lose the last commits"
            if off
            else "survives kill and power loss: on disk before the answer"
            + (", there and on a synchronous standby" if replicated else "")
        ),
        takeover="the server's clock (clock_timestamp()), which its administrator can set",
        fence="rises while the server's clock is not set back over a loss of rows",
        clock_margin=clock_margin,
        notes=tuple(notes),
    )
