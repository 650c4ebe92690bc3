"""Which modules are mutated, and which tests have to notice: quick ones that say what the module promises."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """A module of the core, and what pytest is given to test it."""

    module: str
    tests: tuple[str, ...]


CORE = (
    Row("leased.policy", ("tests/engine",)),
    Row("leased.queue", ("tests/engine",)),
    Row("leased.keeper", ("tests/engine",)),
    Row(
        "leased.join",
        tuple(f"tests/engine/test_join{part}.py" for part in ("", "_turns", "_rows", "_interrupts")),
    ),
    Row("leased.hold", ("tests/engine",)),
    Row("leased.cleanup", ("tests/engine/test_cleanup.py",)),
    Row("leased.engine", ("tests/engine",)),
    Row("leased.stores.memory", ("tests/stores/test_memory.py", "tests/contract/test_contract.py", "-k", "memory")),
    Row("leased.stores._sql_rules", ("tests/stores/test_decisions.py",)),
    Row("leased.stores._cas_record", ("tests/stores/cas/test_values.py", "tests/stores/cas/test_kept.py")),
    Row("leased.stores._cas_clock", ("tests/stores/cas/test_values.py",)),
    Row(
        "leased.server.rights",
        (
            "tests/server/access/test_matrix.py",
            "tests/server/access/test_gate.py",
            "tests/server/access/test_rights.py",
        ),
    ),
    Row("leased.server.limits", ("tests/server/access/test_limits.py",)),
    Row("leased.server.rules", ("tests/server/access/test_rules.py",)),
)
