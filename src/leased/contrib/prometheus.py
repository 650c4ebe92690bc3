"""Events as Prometheus metrics, with the names of locks as labels and never a key. It starts no server.

| metric | labels | what it counts |
| --- | --- | --- |
| `leased_events_total` | `event`, `lock` | every event, by its name |
| `leased_lost_total` | `lock`, `reason` | leases that ended before their holder gave them up |
| `leased_wait_seconds` | `lock` | from asking to getting the key |
| `leased_hold_seconds` | `lock` | from getting the key to its release or loss |
| `leased_held` | `lock` | holds of this process now |
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from leased.contrib.telemetry import Labels, OpenHolds
from leased.observe import Event

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0)


class PrometheusObserver:
    """An observer that keeps these metrics in `registry`; by default in that of `prometheus_client`.

    Give one to every `connect`, and make only one for each registry.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        from prometheus_client import REGISTRY, Counter, Gauge, Histogram

        where = REGISTRY if registry is None else registry
        self._events = Counter("leased_events_total", "Events of locks.", ["event", "lock"], registry=where)
        self._lost = Counter("leased_lost_total", "Leases lost before release.", ["lock", "reason"], registry=where)
        self._waits = Histogram("leased_wait_seconds", "To get a key.", ["lock"], registry=where, buckets=_BUCKETS)
        self._holds = Histogram("leased_hold_seconds", "Keys were held.", ["lock"], registry=where, buckets=_BUCKETS)
        self._held = Gauge("leased_held", "Holds of this process now.", ["lock"], registry=where)
        self._labels = Labels()
        self._open: OpenHolds[str] = OpenHolds(lambda lock: self._held.labels(lock).dec())

    def __call__(self, event: Event) -> None:
        """See `leased.Observer`."""
        lock = self._labels.of(event)
        self._events.labels(event.name, lock).inc()
        if event.name == "acquired":
            self._waits.labels(lock).observe(event.data.get("waited", 0.0))
            self._held.labels(lock).inc()
            self._open.begin(event, lock, at=time.monotonic())
        elif event.name in ("released", "lost"):
            begun = self._open.end(event)
            if begun is not None:
                self._held.labels(begun.kept).dec()
                self._holds.labels(begun.kept).observe(time.monotonic() - begun.at)
            if event.name == "lost":
                self._lost.labels(lock, str(event.data.get("reason", ""))).inc()
