"""Events as Prometheus metrics, with the names of locks as labels and never a key. It starts no server.

| metric | labels | what it counts |
| --- | --- | --- |
| `leased_events_total` | `event`, `lock` | every event, by its name |
| `leased_lost_total` | `lock`, `reason` | leases that ended before their holder gave them up |
| `leased_wait_seconds` | `lock` | from asking to getting the key |
| `leased_hold_seconds` | `lock` | from getting the key to its release, loss or hand-over |
| `leased_held` | `lock` | holds of this process now; in the client's multiprocess mode, of all that live |
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from leased.contrib.telemetry import Held, Labels, OpenHolds
from leased.observe import BEGINS, ENDS, Event

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import GaugeMetricFamily

_HELD = ("leased_held", "Holds of this process now.")

_BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1800.0, 7200.0)


class PrometheusObserver:
    """An observer that keeps these metrics in `registry`; by default in that of `prometheus_client`.

    Give one to every `connect`, and make only one for each registry.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        from prometheus_client import REGISTRY, Counter, Histogram

        where = REGISTRY if registry is None else registry
        self._events = Counter("leased_events_total", "Events of locks.", ["event", "lock"], registry=where)
        self._lost = Counter("leased_lost_total", "Leases lost before release.", ["lock", "reason"], registry=where)
        self._waits = Histogram("leased_wait_seconds", "To get a key.", ["lock"], registry=where, buckets=_BUCKETS)
        self._holds = Histogram("leased_hold_seconds", "Keys were held.", ["lock"], registry=where, buckets=_BUCKETS)
        self._held = _held(where)
        self._labels = Labels()
        self._open: OpenHolds[str] = OpenHolds(lambda lock: self._held(lock, -1))

    def __call__(self, event: Event) -> None:
        """See `leased.Observer`."""
        lock = self._labels.of(event)
        self._events.labels(event.name, lock).inc()
        if event.name in BEGINS:
            if event.name == "acquired":
                self._waits.labels(lock).observe(event.data.get("waited", 0.0))
            self._held(lock, 1)
            self._open.begin(event, lock, at=time.monotonic())
        elif event.name in ENDS:
            begun = self._open.end(event)
            if begun is not None:
                self._held(begun.kept, -1)
                self._holds.labels(begun.kept).observe(time.monotonic() - begun.at)
            if event.name == "lost":
                self._lost.labels(lock, str(event.data.get("reason", ""))).inc()


def _held(registry: CollectorRegistry) -> Callable[[str, int], None]:
    """The gauge of holds; gives what changes it. The client's own would say in a forked child what its parent holds,
    but in the multiprocess mode."""
    from prometheus_client import Gauge

    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        gauge = Gauge(*_HELD, ["lock"], registry=registry, multiprocess_mode="livesum")
        return lambda lock, by: gauge.labels(lock).inc(by)
    here = Held()
    collector: Any = _HeldHere(here)
    registry.register(collector)
    return here.change


class _HeldHere:
    """What the registry asks for the holds of this process."""

    def __init__(self, held: Held) -> None:
        self._held = held

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """The metric, without its values."""
        from prometheus_client.core import GaugeMetricFamily

        yield GaugeMetricFamily(*_HELD, labels=["lock"])

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The metric as it is now."""
        for family in self.describe():
            for label, count in self._held.now().items():
                family.add_metric([label], count)
            yield family
