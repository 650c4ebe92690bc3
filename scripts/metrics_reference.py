"""The generated page about metrics: each is made to happen once, and what then stands in the output is written down."""

import re
from collections.abc import Iterable
from typing import Any

from leased.contrib.opentelemetry import OpenTelemetryObserver
from leased.contrib.prometheus import PrometheusObserver
from leased.contrib.telemetry import MAX_LABELS, MAX_OPEN
from leased.observe import Event
from leased.server.service import Service
from leased.server.settings import Settings

INTRODUCTION = """\
Two places count: the *lock service*, at `/metrics`, and each *program* that uses leased, through an
[observer](../how-to/observe.md) of its own. No label is ever a key. Seconds are seconds, as fractions."""
SERVICE_INTRODUCTION = """\
`GET /metrics` answers in Prometheus's text format. Where the service has credentials it asks for
`Authorization: Bearer` and the [`metrics_token`](service-settings.md). Counts are those of one process and begin at
zero with it: sum them over [replicas](../service/replicas.md)."""
PROMETHEUS_INTRODUCTION = """\
`leased.contrib.prometheus.PrometheusObserver`, in the registry of `prometheus_client` that it is given."""
OPENTELEMETRY_INTRODUCTION = """\
`leased.contrib.opentelemetry.OpenTelemetryObserver`, with the meter provider that it is given. Its spans are
[among the integrations](integrations.md#leasedcontribopentelemetry)."""
LABELS = f"""\
`lock` (`leased.lock`) is the `name` of a lock, `unnamed` where it has none, and `other` beyond {MAX_LABELS} different
names. `event` is [the name of an event](settings.md#events). `reason` is why a lease was
lost. The times and gauges of holds are those of the last {MAX_OPEN:,} that began."""

OUTCOMES = {
    "acquire": ("held", "contended"),
    "renew": ("held", "lost"),
    "look": ("held", "lost"),
    "release": ("released", "not_holder", "expired"),
    "abandon": ("abandoned",),
    "force-release": ("released", "not_holder"),
}
"""What can come of each operation; a test asks a service for all of them."""

_SAMPLE = re.compile(r"^(?P<name>[a-z_]+)(?:\{(?P<labels>[^}]*)\})? ")
_LABEL = re.compile(r'([a-z]+)="')
_EVENTS = (
    Event("acquired", "k", "n", {"waited": 0.25, "fencing_token": 1}),
    Event("lost", "k", "n", {"reason": "expired", "fencing_token": 1}),
)


def metrics_page() -> str:
    """Every metric of the service and of the two observers, with its kind, its labels and its meaning."""
    return "\n\n".join(
        [
            "# Metrics",
            INTRODUCTION,
            "## The lock service",
            SERVICE_INTRODUCTION,
            _table(_of_the_service()),
            "`operation` and `outcome` go together:",
            _outcomes(),
            "`route` is a method and a path as [the API](service-api.md) declares it, `status` the HTTP status.",
            "## Prometheus",
            PROMETHEUS_INTRODUCTION,
            _table(_of_prometheus()),
            "## OpenTelemetry",
            OPENTELEMETRY_INTRODUCTION,
            _table(_of_opentelemetry()),
            "## Labels",
            LABELS,
        ]
    )


def _table(rows: Iterable[tuple[str, str, Iterable[str], str]]) -> str:
    lines = ["| metric | kind | labels | what it says |", "| --- | --- | --- | --- |"]
    for name, kind, labels, meaning in rows:
        shown = ", ".join(f"`{label}`" for label in labels) or "–"
        lines.append(f"| `{name}` | {kind} | {shown} | {meaning} |")
    return "\n".join(lines)


def _outcomes() -> str:
    lines = ["| operation | outcome |", "| --- | --- |"]
    lines += [f"| `{one}` | {', '.join(f'`{word}`' for word in words)} |" for one, words in OUTCOMES.items()]
    return "\n".join(lines)


def _of_the_service() -> list[tuple[str, str, list[str], str]]:
    metrics = Service(Settings(store="memory:described")).metrics
    metrics.count("acquire", "held")
    metrics.route("POST /v1/locks/acquire").add(200, 0.001)
    kinds: dict[str, tuple[str, str]] = {}
    labels: dict[str, list[str]] = {}
    meaning = ""
    for line in metrics.text().splitlines():
        if line.startswith("# HELP "):
            meaning = line.split(" ", 3)[3]
        elif line.startswith("# TYPE "):
            name, kind = line.split(" ")[2:]
            kinds[name] = kind, meaning
        elif match := _SAMPLE.match(line):
            name = next(one for one in kinds if match["name"].startswith(one))
            found = [one for one in _LABEL.findall(match["labels"] or "") if one != "le"]
            labels.setdefault(name, found)
    return [(name, kind, labels[name], meaning) for name, (kind, meaning) in kinds.items()]


def _of_prometheus() -> list[tuple[str, str, list[str], str]]:
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    observer = PrometheusObserver(registry)
    for event in _EVENTS:
        observer(event)
    rows = []
    for family in registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        rows.append((name, family.type, labels, family.documentation))
    return rows


def _of_opentelemetry() -> list[tuple[str, str, list[str], str]]:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider

    reader = InMemoryMetricReader()
    meters = MeterProvider([reader])
    observer = OpenTelemetryObserver(tracer_provider=TracerProvider(), meter_provider=meters)
    for event in _EVENTS:
        observer(event)
    data: Any = reader.get_metrics_data()
    meters.shutdown()
    rows = []
    for metric in data.resource_metrics[0].scope_metrics[0].metrics:
        labels = sorted({label for point in metric.data.data_points for label in point.attributes})
        meaning = f"{metric.description} In seconds." if metric.unit else metric.description
        rows.append((metric.name, _kind(metric.data), labels, meaning))
    return rows


def _kind(data: Any) -> str:
    if type(data).__name__ == "Sum":
        return "counter" if data.is_monotonic else "up-down counter"
    return str(type(data).__name__).lower()
