"""What the registry says to PostgreSQL: its tables, and each statement once. Nothing is sent from here."""

from __future__ import annotations

from leased.server.registry_postgres_holds import TABLE

SCHEMA_VERSION = 1

MAKING = 0x1EA5EE
"""The advisory lock under which tables are made."""

SCHEMA = f"""\
CREATE TABLE IF NOT EXISTS leased_registry_mark (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one), mark text NOT NULL, version integer NOT NULL
);
CREATE TABLE IF NOT EXISTS leased_registry_credential (
    id text COLLATE "C" PRIMARY KEY, project text COLLATE "C" NOT NULL, record text NOT NULL,
    revoked_at double precision
);
CREATE INDEX IF NOT EXISTS leased_registry_credential_of ON leased_registry_credential (project, id);
CREATE TABLE IF NOT EXISTS leased_registry_rule_set (
    project text COLLATE "C" PRIMARY KEY, name text NOT NULL, sources text NOT NULL
);
CREATE TABLE IF NOT EXISTS leased_registry_request (
    project text COLLATE "C" NOT NULL, id bytea NOT NULL, digest bytea NOT NULL, ends double precision NOT NULL,
    PRIMARY KEY (project, id)
);
CREATE INDEX IF NOT EXISTS leased_registry_request_ends ON leased_registry_request (project, ends);
CREATE TABLE IF NOT EXISTS leased_registry_audit (
    number bigserial PRIMARY KEY, project text COLLATE "C" NOT NULL, line text NOT NULL
);
CREATE INDEX IF NOT EXISTS leased_registry_audit_of ON leased_registry_audit (project, number);
CREATE OR REPLACE FUNCTION leased_registry_audit_grows() RETURNS trigger LANGUAGE plpgsql AS
    $$BEGIN RAISE EXCEPTION 'the audit log only grows'; END$$;
DROP TRIGGER IF EXISTS leased_registry_audit_grows ON leased_registry_audit;
CREATE TRIGGER leased_registry_audit_grows BEFORE UPDATE OR DELETE OR TRUNCATE ON leased_registry_audit
    EXECUTE FUNCTION leased_registry_audit_grows();
CREATE UNLOGGED TABLE IF NOT EXISTS leased_registry_budget (
    name bytea PRIMARY KEY, full_at bigint NOT NULL  -- a crash may forget what was used, but nobody waits for a disk
) WITH (fillfactor = 50);
{TABLE}COMMENT ON TABLE leased_registry_mark IS 'registry of leased, version {SCHEMA_VERSION} of its tables';
"""
"""What makes the tables where they do not exist. Budgets are full again at an instant in microseconds."""

CREDENTIAL = "SELECT record, revoked_at FROM leased_registry_credential WHERE id = %s"
CREDENTIALS = (
    "SELECT record, revoked_at FROM leased_registry_credential WHERE project = %s AND id > %s ORDER BY id LIMIT %s"
)
ADD = "INSERT INTO leased_registry_credential VALUES (%s, %s, %s, NULL) ON CONFLICT DO NOTHING"
REVOKE = "UPDATE leased_registry_credential SET revoked_at = %s WHERE id = %s AND project = %s AND revoked_at IS NULL"
RULE_SET = "SELECT name, sources FROM leased_registry_rule_set WHERE project = %s"
PUT = """
    INSERT INTO leased_registry_rule_set AS present VALUES (%s, %s, %s) ON CONFLICT (project)
    DO UPDATE SET sources = excluded.sources WHERE present.name = excluded.name
"""
DELETE = "DELETE FROM leased_registry_rule_set WHERE project = %s AND name = %s"
LINE = "INSERT INTO leased_registry_audit (project, line) VALUES (%s, %s)"
LINES = (
    "SELECT number, line FROM leased_registry_audit WHERE project = %s AND number < %s ORDER BY number DESC LIMIT %s"
)

BIND = """
    INSERT INTO leased_registry_request AS present VALUES (%(project)s, %(id)s, %(digest)s, %(until)s)
    ON CONFLICT (project, id) DO UPDATE SET digest = excluded.digest, ends = excluded.ends
    WHERE present.ends <= %(now)s RETURNING digest
"""
BOUND = "SELECT digest FROM leased_registry_request WHERE project = %s AND id = %s"
FORGET_ENDED = """
    DELETE FROM leased_registry_request WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM leased_registry_request WHERE project = %(project)s AND ends <= %(now)s
        LIMIT %(most)s FOR UPDATE SKIP LOCKED
    )) AND ends <= %(now)s
"""
FORGET_SURPLUS = """
    DELETE FROM leased_registry_request WHERE project = %(project)s AND ends <= (
        SELECT ends FROM leased_registry_request WHERE project = %(project)s
        ORDER BY ends DESC OFFSET %(most)s LIMIT 1
    )
"""


def _clocked(statement: str) -> str:
    """A statement in which a table `clock` has the present, `now`, in microseconds."""
    clock = "WITH clock AS (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now)"
    return f"{clock} {statement}"


TAKE = _clocked("""
    INSERT INTO leased_registry_budget AS present SELECT %(name)s, now + %(cost)s::bigint FROM clock
    ON CONFLICT (name) DO UPDATE SET full_at = greatest(present.full_at + %(cost)s::bigint, excluded.full_at)
    WHERE present.full_at - excluded.full_at <= %(span)s::bigint - 2 * %(cost)s::bigint
""")
"""Use a budget, or change nothing. `excluded.full_at` is the present plus the cost."""

SPEND = _clocked("""
    INSERT INTO leased_registry_budget AS present
        SELECT %(name)s, now + least(%(cost)s::bigint, %(span)s::bigint) FROM clock
    ON CONFLICT (name) DO UPDATE SET full_at = (
        SELECT least(greatest(present.full_at, now) + %(cost)s::bigint, now + %(span)s::bigint) FROM clock
    )
""")
LATE = _clocked("""
    SELECT full_at + %(cost)s::bigint - now - %(span)s::bigint FROM leased_registry_budget, clock WHERE name = %(name)s
""")
HEAL = _clocked("""
    UPDATE leased_registry_budget SET full_at = now + %(span)s::bigint FROM clock
    WHERE name = %(name)s AND full_at > now + %(span)s::bigint
""")
"""A level further off than the span was left by a clock that went back since: it means that nothing is left."""

SWEEP = _clocked("""
    DELETE FROM leased_registry_budget USING clock WHERE full_at < now AND ctid = ANY(ARRAY(
        SELECT ctid FROM leased_registry_budget, clock WHERE full_at < now
        LIMIT %s FOR UPDATE OF leased_registry_budget SKIP LOCKED
    ))
""")
"""Remove budgets that are full, but for those in use: waiting for their rows could end in a deadlock."""
