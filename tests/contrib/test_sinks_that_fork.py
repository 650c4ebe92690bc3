"""Sinks for events in processes that fork, as servers with workers do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

FORKED = """
import os, signal
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from leased.contrib.opentelemetry import OpenTelemetryObserver
from leased.contrib.telemetry import Labels, OpenHolds
from leased.observe import Event

exporter, tracers = InMemorySpanExporter(), TracerProvider()
tracers.add_span_processor(SimpleSpanProcessor(exporter))
observer = OpenTelemetryObserver(tracer_provider=tracers)

def told(name, key):
    observer(Event(name, key, key, {"fencing_token": 7}))

told("acquired", "before")
told("released", "before")
told("acquired", "inherited")
exporter.clear()
with observer._mutex, observer._open._mutex, observer._labels._mutex:  # as another thread has them, in that instant
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        for name in ("before", "new"):
            told("acquired", name)
        for name in ("before", "new", "inherited"):
            told("released", name)
        spans = [one for one in exporter.get_finished_spans() if one.name == "lease hold"]
        print([(one.attributes["leased.key"], len(one.links)) for one in spans], flush=True)
        os._exit(0)
assert os.waitpid(child, 0)[1] == 0
told("released", "inherited")
print([one.attributes["leased.key"] for one in exporter.get_finished_spans()])
"""

SUMMED = """
import os
from prometheus_client import CollectorRegistry, multiprocess
from leased.contrib.prometheus import PrometheusObserver
from leased.observe import Event

observer = PrometheusObserver(CollectorRegistry())
reading, writing = os.pipe()
observer(Event("acquired", "parent", "report", {"fencing_token": 7}))
child = os.fork()
if child == 0:
    observer(Event("acquired", "child", "report", {"fencing_token": 8}))
    observer(Event("released", "parent", "report", {"fencing_token": 7}))
    os.write(writing, b"x")
    os._exit(0)
os.read(reading, 1)
os.waitpid(child, 0)
registry = CollectorRegistry()
multiprocess.MultiProcessCollector(registry)
print(registry.get_sample_value("leased_held", {"lock": "report"}))
multiprocess.mark_process_dead(child)
print(registry.get_sample_value("leased_held", {"lock": "report"}))
"""

ALONE = """
import os
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry
from leased.contrib.opentelemetry import OpenTelemetryObserver
from leased.contrib.prometheus import PrometheusObserver
from leased.contrib.telemetry import Aside, together
from leased.observe import Event

registry, reader = CollectorRegistry(), InMemoryMetricReader()
both = together(
    PrometheusObserver(registry), OpenTelemetryObserver(meter_provider=MeterProvider(metric_readers=[reader]))
)
aside = Aside(both)

def told(name, number):
    both(Event(name, "key", "report", {"fencing_token": number}))

def shown():
    data = reader.get_metrics_data()
    metrics = [one for found in data.resource_metrics for scope in found.scope_metrics for one in scope.metrics]
    held = sum(point.value for one in metrics if one.name == "leased.held" for point in one.data.data_points)
    return round(registry.get_sample_value("leased_held", {"lock": "report"})), held

told("acquired", 1)
told("acquired", 2)
aside(Event("acquired", "key", "report", {"fencing_token": 3}))
assert aside.close()
print(*shown(), flush=True)
for generation in range(2):
    child = os.fork()
    if child:
        break
    print(round(registry.get_sample_value("leased_held", {"lock": "report"})), flush=True)
    told("released", 1)
    if generation == 0:
        told("acquired", 7)
    print(*shown(), flush=True)
    aside(Event("acquired", "key", "report", {"fencing_token": 8 + generation}))
    assert aside.close()
    print(*shown(), flush=True)
if child:
    assert os.waitpid(child, 0)[1] == 0
    if generation == 0:
        told("released", 1)
        print(*shown(), flush=True)
"""


def run(program: str, **environment: str) -> str:
    """What a program prints that forks."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_forked_child_begins_anew() -> None:
    """P3: what another thread of the parent was doing blocks no child; holds of the parent are its own, with their
    spans: the child neither ends them nor links to what came before."""
    assert run(FORKED).splitlines() == ["[('before', 1), ('new', 1)]", "['inherited']"]


def test_holds_of_all_processes_are_summed(tmp_path: Path) -> None:
    """P3: with the directory that workers share, the gauge says how many holds all living processes have."""
    assert run(SUMMED, PROMETHEUS_MULTIPROC_DIR=str(tmp_path)).split() == ["2.0", "1.0"]


def test_a_child_shows_its_own_holds() -> None:
    """P3: also without the directory that workers share: what the parent holds is in no gauge of a child, nor of the
    child's own, and what waits for a slow observer is told by the process in which it happened."""
    parent, *shown = run(ALONE).splitlines()
    assert parent == "3 3"
    child, grandchild = shown[:3], shown[3:6]
    assert child == ["0", "1 1", "2 2"]
    assert grandchild == ["0", "0 0", "1 1"]
    assert shown[6:] == ["2 2"]
