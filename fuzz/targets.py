"""The targets by name. A module that is none of them does not belong beside them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

NAMES = (
    "answers", "api_keys", "arguments", "bodies", "cas_records", "dumps", "durations", "events", "fencing_headers",
    "heads", "http_replies", "keys", "mysql_packets", "redis_replies", "registry_files", "rule_files", "rules",
    "sign_ins", "sql_records", "tokens", "urls",
)  # fmt: skip
_SEEDS = Path(__file__).parent / "seeds"

MODULES = {
    "answers": ("leased.wire", "leased.wire_batch", "leased.stores._http_answers"),
    "api_keys": ("leased.server.keys",),
    "arguments": ("leased.cli.parser", "leased.cli.dispatch", "leased.cli.mistakes"),
    "bodies": ("leased.server.requests", "leased.server.manage_requests"),
    "cas_records": ("leased.stores._cas_record", "leased.stores._sql_rules"),
    "dumps": ("leased.handle",),
    "durations": ("leased.checks",),
    "events": ("leased.server.events",),
    "fencing_headers": ("leased.fences.http",),
    "heads": ("leased.server.heads",),
    "http_replies": ("leased.stores._http_wire",),
    "keys": ("leased.checks",),
    "mysql_packets": ("leased.stores._mysql_packets",),
    "redis_replies": ("leased.stores._redis_wire",),
    "registry_files": ("leased.server.registry_file", "leased.server.credentials", "tomllib"),
    "rule_files": ("leased.server.rule_files", "tomllib"),
    "rules": ("leased.server.rules", "leased.server.rule_patterns", "leased.server.rule_trees"),
    "sign_ins": ("leased.server.sessions",),
    "sql_records": ("leased.stores._sqlite_record", "leased.stores._sql_record"),
    "tokens": ("leased.server.tokens", "leased.server.key_sets", "jwt"),
    "urls": (
        "leased.targets",
        *(f"leased.stores._{name}_url" for name in ("dynamodb", "etcd", "http", "nats", "redis")),
        *("leased.stores._mysql_place", "leased.stores.postgres"),
    ),
}
"""What each target tests: atheris watches which of its branches are taken."""


def property_of(name: str) -> Callable[[bytes], None]:
    """What has to hold for all bytes: raises anything where it does not."""
    check: Callable[[bytes], None] = import_module(f"fuzz.{name}").check
    return check


def seeds_of(name: str) -> list[bytes]:
    """The kept inputs: one a line, as a literal of Python."""
    lines = (_SEEDS / f"{name}.txt").read_text(encoding="ascii").splitlines()
    return [ast.literal_eval(line) for line in lines if line and not line.startswith("#")]
