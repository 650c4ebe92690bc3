"""Which peers are faster than leased in which row, and why: read off the record, with a reason for each peer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bench.measure import shown

_FILE = (
    "the system frees its lock with the process, so that it writes nothing that has to be on disk, has no expiry, "
    "no fencing token and nothing to renew"
)
_SESSION = (
    "a lock of the session writes nothing and waits for no disk; it goes with the connection, has no expiry and no "
    "fencing token, and needs a connection for as long as it is held"
)
_BLOCKS = (
    "its waiter blocks in `BLPOP` on a connection of its own, which the server wakes: it asks for nothing meanwhile, "
    "and has no fencing token and no line of waiters"
)
REASONS = {
    "aetcd": (
        "it keeps one connection of gRPC open, where leased asks the JSON gateway, and leaves the end of a lock to a "
        "lease of etcd, which a stalled leader has revoked from live holders; no fencing token"
    ),
    "python-redis-lock": _BLOCKS,
    "python-redis-lock, one waiter": _BLOCKS,
    "filelock": _FILE,
    "filelock's SQLite lock": "an open transaction is the lock: nothing is written, and it ends with the process",
    "django-pglock": _SESSION,
    "sqlalchemy-dlock": _SESSION,
    "valkey-py Lock": (
        "`SET NX PX` and a script that deletes: no fencing token, no owner, no line of waiters, and it looks neither "
        "whether a fork took its connection nor whether an answer that got lost was a grant"
    ),
}
"""What each peer that is ahead somewhere does not do; a test looks that none is missing."""


def ahead(record: Mapping[str, Any]) -> list[tuple[str, str, str, float]]:
    """Row, table, peer, and how many times as long the best line of leased takes; the greatest first."""
    found = []
    for row, kept in record.items():
        for table in kept["tables"]:
            peers = [one["name"] for one in table["lines"] if one["role"] == "peer"]
            for peer in peers:
                ratios = [one["to_peers"][peer] for one in table["lines"] if peer in one["to_peers"]]
                if ratios and min(ratios) > 1:
                    found.append((row, table["title"], peer, min(ratios)))
    return sorted(found, key=lambda one: -one[3])


def lines(record: Mapping[str, Any]) -> Iterator[str]:
    """The section of the page."""
    found = ahead(record)
    yield "## Where a peer is faster\n"
    if not found:
        yield "Nowhere, in the rows that were measured."
        return
    yield "The best way of leased takes so many times as long as that peer:\n"
    yield "| row | peer | times | why |\n| --- | --- | ---: | --- |"
    for row, title, peer, ratio in found:
        place, why = f"[{row}](#{row}), {title}", REASONS.get(peer, "")
        yield f"| {place} | {peer} | {shown(ratio)} | {why} |"
    yield (
        "\nWhere time goes that is neither the store's nor a peer's is [counted](explanation/costs.md), for each row "
        "that misses its target."
    )
