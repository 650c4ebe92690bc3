"""Metrics of a program that locks a hundred thousand keys: the number of series stays bounded, and so does memory."""

from __future__ import annotations

import itertools
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

import leased
from leased.contrib.opentelemetry import OpenTelemetryObserver
from leased.contrib.prometheus import PrometheusObserver
from leased.contrib.telemetry import MAX_LABELS, MAX_OPEN, together
from leased.observe import Event

KEYS = 100_000
NAMES = 1000


def events_of_locks() -> list[list[Event]]:
    """What locks really tell: of a hold that is released, and of one that is lost while another one is refused."""
    seen: list[Event] = []
    with leased.connect("memory:many-keys", observer=seen.append) as locks:
        locks.lock("key", name="name").acquire().release()
        released = seen.copy()
        seen.clear()
        handle = locks.lock("key", name="name").acquire()
        assert locks.lock("key", name="name").try_acquire() is None
        assert locks.force_release("key")
        assert not handle.renew()
    assert {event.name for event in released} == {"acquired", "released"}
    assert {event.name for event in seen} == {"acquired", "contended", "force_released", "lost"}
    return [released] * 99 + [seen]


def test_a_hundred_thousand_keys_are_a_bounded_number_of_series() -> None:
    """P3: each key is taken and let go, by locks of a thousand names and of none, and some are refused or lost: every
    label set that either sink has is of names that were declared, at most the limit and two, and nothing stays open."""
    registry, reader = CollectorRegistry(), InMemoryMetricReader()
    traced = OpenTelemetryObserver(meter_provider=MeterProvider(metric_readers=[reader]))
    counting = PrometheusObserver(registry)
    both = together(counting, traced)
    names = itertools.cycle([*(f"name-{number}" for number in range(NAMES)), None])
    for number, events in zip(range(KEYS), itertools.cycle(events_of_locks()), strict=False):
        name = next(names)
        for event in events:
            data = {**event.data, **({"fencing_token": number} if "fencing_token" in event.data else {})}
            both(Event(event.name, f"key-{number}", name if event.lock else None, data))
    series = {
        (sample.name, *sorted(sample.labels.items())) for metric in registry.collect() for sample in metric.samples
    }
    attributes = {(name, *sorted(point.attributes.items())) for name, point in points(reader)}
    allowed = {f"name-{number}" for number in range(NAMES)} | {"other", "unnamed"}
    for found, label in ((series, "lock"), (attributes, "leased.lock")):
        labels = {value for _, *pairs in found for name, value in pairs if name == label}
        assert labels <= allowed
        assert len(labels) <= MAX_LABELS + 2
        assert "key-" not in str(found)
    assert len(series) < 60 * (MAX_LABELS + 2)
    assert len(attributes) < 12 * (MAX_LABELS + 2)
    assert sum(point.value for name, point in points(reader) if name == "leased.held") == 0
    assert set(held(registry).values()) == {0}
    assert len(traced._open) == len(counting._open) == 0
    assert len(traced._before) <= MAX_OPEN


def points(reader: InMemoryMetricReader) -> list[tuple[str, Any]]:
    """All points of all instruments."""
    data: Any = reader.get_metrics_data()
    metrics = [one for resource in data.resource_metrics for scope in resource.scope_metrics for one in scope.metrics]
    return [(metric.name, point) for metric in metrics for point in metric.data.data_points]


def held(registry: CollectorRegistry) -> dict[str, float]:
    """What the gauge of holds says, by label."""
    samples = [sample for metric in registry.collect() for sample in metric.samples if sample.name == "leased_held"]
    return {sample.labels["lock"]: sample.value for sample in samples}
