"""The scenarios, by their names; a name that is the beginning of others stands for all of them."""

from __future__ import annotations

from collections.abc import Sequence

from nemesis.scenarios.clients_clocks import SCENARIOS as CLIENTS_CLOCKS
from nemesis.scenarios.clocks import SCENARIOS as CLOCKS
from nemesis.scenarios.postgres_promotion import SCENARIOS as POSTGRES_PROMOTION
from nemesis.scenarios.redis_cluster import SCENARIOS as REDIS_CLUSTER
from nemesis.scenarios.redis_network import SCENARIOS as REDIS_NETWORK
from nemesis.scenarios.redis_promotion import SCENARIOS as REDIS_PROMOTION
from nemesis.scenarios.redis_redirect import SCENARIOS as REDIS_REDIRECT
from nemesis.scenarios.redis_server import SCENARIOS as REDIS_SERVER
from nemesis.scenarios.service import SCENARIOS as SERVICE
from nemesis.scenarios.sql_server import SCENARIOS as SQL_SERVER
from nemesis.scenarios.sqlite import SCENARIOS as SQLITE
from nemesis.stage import Scenario

_ALL = (
    *(*SQLITE, *REDIS_SERVER, *REDIS_NETWORK, *REDIS_CLUSTER, *REDIS_PROMOTION, *REDIS_REDIRECT, *SQL_SERVER),
    *(*POSTGRES_PROMOTION, *CLOCKS, *CLIENTS_CLOCKS, *SERVICE),
)

SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in _ALL}
"""All of them, in the order in which they are run."""


def chosen(names: Sequence[str]) -> list[Scenario]:
    """Those with these names, or of these stores (`redis`); all for no names. `KeyError` for a name of nothing."""
    found: dict[str, Scenario] = {}
    for name in names or [""]:
        matching = {one.name: one for one in SCENARIOS.values() if _means(name, one.name)}
        if not matching:
            raise KeyError(name)
        found |= matching
    return list(found.values())


def _means(given: str, name: str) -> bool:
    return given in ("", name) or name.startswith(f"{given}-")
