"""What a PostgreSQL server, as configured now, gives: asked once for every new connection."""

from __future__ import annotations

from leased.model import Assurance
from leased.stores._postgres_statements import statement
from leased.stores._postgres_wire import Wire

_QUESTION = statement(
    """SELECT pg_backend_pid()::text, pg_is_in_recovery()::text, current_setting('fsync'),
    current_setting('full_page_writes'), current_setting('synchronous_commit'),
    current_setting('synchronous_standby_names'), current_setting('server_version'),
    ((SELECT count(*) FROM pg_stat_replication)
    + (SELECT count(*) FROM pg_replication_slots WHERE slot_type = 'physical' AND NOT active))::text""",
    writes=False,
)


async def read_server(wire: Wire, until: float, *, clock_margin: float) -> tuple[Assurance, bool]:
    """Ask a new connection what the server gives and whether it has standbys, and see if a pooler is in between."""
    result = await wire.ask(_QUESTION, (), until=until)
    told = [result.get_value(0, column).decode() for column in range(8)]
    backend, standby, fsync, full_pages, commit, standbys, version, replicas = told
    # A pooler tells a number of its own. Behind it every transaction may meet another server process.
    wire.prepares = str(wire.connection.backend_pid) == backend
    notes = [f"PostgreSQL {version}"]
    if not wire.prepares:
        notes.append("through a pooler: waiters notice releases by asking again, not by push")
    if standby == "true":
        notes.append("this is a standby, which grants nothing until it is promoted")
    followed = replicas != "0" or bool(standbys)
    alone = replicas == "0" and standby == "false"
    settings = {"fsync": fsync, "full_page_writes": full_pages, "synchronous_commit": commit}
    off = [name for name, value in settings.items() if value == "off"]
    if off:
        notes.append(f"{' and '.join(off)} = off: a crash can lose leases that were granted")
        durable = "a crash of the server or its machine can lose the last commits"
        return _assurance("volatile", durable, notes=notes, margin=clock_margin), followed
    if standbys and commit != "local":
        durable = f"on disk before the answer, and confirmed by a synchronous standby (synchronous_commit = {commit})"
        return _assurance("replicated", durable, notes=notes, margin=clock_margin), followed
    durable = "survives kill and power loss: on disk before the answer"
    if alone:
        return _assurance("primary", durable, notes=notes, margin=clock_margin), followed
    notes.append("no standby is synchronous: a fail-over to one can lose the leases granted last")
    return _assurance("until-failover", durable, notes=notes, margin=clock_margin), followed


def _assurance(exclusive: str, durable: str, *, notes: list[str], margin: float) -> Assurance:
    return Assurance(
        exclusive=exclusive,
        early_loss=exclusive in ("volatile", "until-failover"),
        durable=durable,
        takeover="the server's clock (clock_timestamp()), which its administrator can set",
        fence="rises while the server's clock is not set back over a loss of rows",
        clock_margin=margin,
        notes=tuple(notes),
    )
