"""The tables of the PostgreSQL store: their names and how they are made. No connection is opened here."""

from __future__ import annotations

import re

from leased.checks import shown
from leased.errors import InvalidRequest

_NAME = re.compile(r"(?:[a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,39}")
DEFAULT_NAME = "leased"
SCHEMA_VERSION = 1


def table_names(name: str) -> tuple[str, str]:
    """The quoted names of both tables, from what their names begin with: `name` or `schema.name`."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"leased_table {shown(name)!r} is not a name of up to 40 small letters, digits and underscores",
            hint="such as 'leased', or 'schema.leased'",
        )
    quoted = ".".join(f'"{part}"' for part in name.split("."))
    return f'{quoted[:-1]}_record"', f'{quoted[:-1]}_mark"'


def ddl(name: str) -> str:
    """What makes the tables where they do not exist. A second index on the records is avoided: each grant would pay."""
    record, mark = table_names(name)
    index = re.sub(r"[^a-z0-9_]", "", name.rpartition(".")[2])
    return f"""\
CREATE TABLE IF NOT EXISTS {record} (
    namespace bytea NOT NULL, key bytea NOT NULL,  -- as bytes, for no collation or encoding may change them
    token bytea,                                   -- SHA-256 of the last lease's token; NULL once that was ended
    owner bytea, held_by bytea NOT NULL, metadata bytea NOT NULL,
    fencing_token bigint NOT NULL, renewal bigint NOT NULL,
    acquired_at bigint NOT NULL,                   -- µs since the epoch; the following are µs since then
    expires_in bigint NOT NULL, free_in bigint NOT NULL, max_hold bigint NOT NULL,
    ttl bigint NOT NULL, hold_at_least bigint NOT NULL, lock_delay bigint NOT NULL,
    late boolean NOT NULL, forced boolean NOT NULL,
    marked_until bigint NOT NULL, watched_until bigint NOT NULL,
    PRIMARY KEY (namespace, key)
) WITH (fillfactor = 70);
CREATE TABLE IF NOT EXISTS {mark} (
    namespace bytea NOT NULL, token bytea NOT NULL, reason text NOT NULL, until bigint NOT NULL,
    PRIMARY KEY (namespace, token)
);
CREATE INDEX IF NOT EXISTS "{index}_mark_until" ON {mark} (until);
COMMENT ON TABLE {record} IS 'locks kept by leased, version {SCHEMA_VERSION} of the tables';
COMMENT ON TABLE {mark} IS 'tokens of ended leases, for a minute each';
"""
