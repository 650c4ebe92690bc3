"""Sinks for events: what they count and trace, that labels stay few, and that a broken one harms no lock."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import re
import time
import timeit
from pathlib import Path
from typing import Any, get_args

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from prometheus_client import CollectorRegistry

import leased
from leased import aio
from leased.contrib.opentelemetry import OpenTelemetryObserver
from leased.contrib.prometheus import PrometheusObserver
from leased.contrib.telemetry import MAX_LABELS, LogObserver, OpenHolds, together
from leased.env import Env
from leased.observe import Event, EventName
from tests.until import until

ROOT = Path(__file__).parents[2]
_numbers = itertools.count()


def connect(observer: leased.Observer) -> leased.Locks:
    """The locks of a store of this test alone."""
    return leased.connect(f"memory:telemetry-{next(_numbers)}", observer=observer)


def lose(locks: leased.Locks) -> None:
    """What runs while its lease is taken away."""
    locks.force_release("secret-key")
    until(lambda: leased.current().lost, what="the loss is known")
    raise KeyError("the work fails as well, so that the loss is raised")


def one_of_each(locks: leased.Locks) -> None:
    """A hold, a refusal, a wait that runs out, and a hold that is lost; all by a lock with a name."""
    report = locks.lock("secret-key", name="report", ttl=0.3)
    with report:
        pass
    other = locks.lock("secret-key", name="report", ttl=30).acquire()
    assert report.try_acquire() is None
    with pytest.raises(leased.LockTimeout):
        report.acquire(wait=0.01)
    other.release()
    with pytest.raises(leased.LockLost):
        report.run(lose, locks)


class Traced:
    """An OpenTelemetry observer whose spans and metrics can be read."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        meters = MeterProvider(metric_readers=[self.reader])
        self.observer = OpenTelemetryObserver(tracer_provider=self.tracers, meter_provider=meters)

    def spans(self, name: str) -> list[Any]:
        """The spans of this name that have ended."""
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def points(self, name: str) -> list[Any]:
        """All points of one instrument."""
        data: Any = self.reader.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics]
        return [
            point for scope in scopes for one in scope.metrics if one.name == name for point in one.data.data_points
        ]


def test_prometheus_counts_what_happened() -> None:
    """P3: events by name, waits, holds, losses by reason, and nothing held at the end."""
    registry = CollectorRegistry()
    with connect(PrometheusObserver(registry)) as locks:
        one_of_each(locks)
        until(lambda: registry.get_sample_value("leased_held", {"lock": "report"}) == 0, what="the loss is told")

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {"lock": "report", **labels})

    counted = {name: value("leased_events_total", event=name) for name in ("acquired", "released", "contended")}
    assert counted == {"acquired": 3, "released": 2, "contended": 1}
    assert value("leased_events_total", event="rejected") == 1
    assert value("leased_lost_total", reason="force_released") == 1
    assert value("leased_wait_seconds_count") == 3
    assert value("leased_hold_seconds_count") == 3
    assert value("leased_held") == 0


def test_opentelemetry_spans() -> None:
    """P3: spans around wait and hold, below what is current, linked from one holder to the next; a loss is an error."""
    traced = Traced()
    tracer = traced.tracers.get_tracer("test")
    with connect(traced.observer) as locks, tracer.start_as_current_span("job") as job:
        one_of_each(locks)
        until(lambda: len(traced.spans("lease hold")) == 3, what="the loss is told")
    holds, waits = traced.spans("lease hold"), traced.spans("lease wait")
    assert {span.parent.span_id for span in (*holds, *waits)} == {job.get_span_context().span_id}
    assert [span.attributes["leased.outcome"] for span in holds] == ["released", "released", "force_released"]
    assert [span.status.status_code for span in holds] == [StatusCode.UNSET, StatusCode.UNSET, StatusCode.ERROR]
    outcomes = sorted(span.attributes["leased.outcome"] for span in waits)
    assert outcomes == ["acquired", "acquired", "acquired", "contended", "rejected"]
    (rejected,) = [span for span in waits if span.attributes["leased.outcome"] == "rejected"]
    assert rejected.end_time - rejected.start_time >= 0.01 * 1e9
    granted = [span for span in waits if span.attributes["leased.outcome"] == "acquired"]
    linked = [{link.context.span_id for link in span.links} for span in holds]
    before = [set(), {holds[0].context.span_id}, {holds[1].context.span_id}]
    assert linked == [{wait.context.span_id} | one for wait, one in zip(granted, before, strict=True)]
    assert all(span.start_time <= span.end_time for span in (*holds, *waits))
    assert {span.attributes["leased.key"] for span in (*holds, *waits)} == {"secret-key"}


def test_opentelemetry_metrics() -> None:
    """P3: counted by name, and balanced."""
    traced = Traced()
    with connect(traced.observer) as locks:
        one_of_each(locks)
        until(lambda: len(traced.spans("lease hold")) == 3, what="the loss is told")
    events = {point.attributes["leased.event"]: point.value for point in traced.points("leased.events")}
    assert events["acquired"] == 3
    assert events["released"] == 2
    assert {point.attributes["leased.lock"] for point in traced.points("leased.events")} <= {"report", "unnamed"}
    assert sum(point.value for point in traced.points("leased.held")) == 0
    assert sum(point.count for point in traced.points("leased.wait.duration")) == 3
    assert sum(point.count for point in traced.points("leased.hold.duration")) == 3


def test_an_acquire_that_fails_is_counted_and_traced() -> None:
    """P3: a store that does not answer is an event by its name, and a wait that ends as an error."""
    traced, registry = Traced(), CollectorRegistry()
    observer = together(traced.observer, PrometheusObserver(registry))
    with (
        leased.connect("redis://127.0.0.1:1?leased_timeout=0.5", observer=observer) as locks,
        pytest.raises(leased.StoreUnavailable),
        locks.lock("secret-key", name="report"),
    ):
        raise AssertionError
    assert registry.get_sample_value("leased_events_total", {"event": "acquire_failed", "lock": "report"}) == 1
    (wait,) = traced.spans("lease wait")
    assert (wait.attributes["leased.outcome"], wait.status.status_code) == ("acquire_failed", StatusCode.ERROR)
    assert wait.attributes["leased.error"] == "StoreUnavailable"
    assert traced.spans("lease hold") == []


def test_a_hand_over_ends_one_span_and_is_linked_to_the_next() -> None:
    """P3, L6: the hold ends where it is handed over and begins where it is restored, linked to the first through what
    `carrier` gave; nothing stays open, also of handles that nobody looks after."""
    here, there = Traced(), Traced()
    store = f"memory:telemetry-{next(_numbers)}"
    with (
        leased.connect(store, observer=here.observer) as first,
        leased.connect(store, observer=there.observer) as other,
    ):
        handle = first.lock("key", name="report", ttl=30).acquire()
        carrier = json.loads(json.dumps(here.observer.carrier(handle)))
        text = handle.hand_over()
        assert here.observer.carrier(handle) == {}
        with there.observer.linked(carrier):
            other.restore(text).release()
        kept = first.lock("key", name="report", ttl=0.3).acquire()
        until(lambda: len(here.spans("lease hold")) == 2, what="the end of a bare handle is told")
        assert kept.lost
    (handed, ran_out), (restored,) = here.spans("lease hold"), there.spans("lease hold")
    outcomes = [span.attributes["leased.outcome"] for span in (handed, ran_out, restored)]
    assert outcomes == ["handed_over", "expired", "released"]
    assert [link.context.span_id for link in restored.links] == [handed.get_span_context().span_id]
    assert there.spans("lease wait") == []
    for traced in (here, there):
        assert sum(point.value for point in traced.points("leased.held")) == 0


def test_what_carries_no_trace_links_to_nothing() -> None:
    """It comes from elsewhere: whatever it is, the lock works. Metadata of a lock can carry a trace too."""
    traced = Traced()
    assert traced.observer.carrier() == {}
    strange: list[dict[str, Any]] = [{}, {"traceparent": 7}, {"traceparent": "00-x"}, {"traceparent": "00-" + "0" * 32}]
    with connect(traced.observer) as locks, traced.tracers.get_tracer("test").start_as_current_span("job") as job:
        for carrier in strange:
            with traced.observer.linked(carrier), locks.lock(f"key-{next(_numbers)}"):
                pass
        assert all(len(span.links) == 1 for span in traced.spans("lease hold"))
        with locks.lock("shown", metadata=traced.observer.carrier()):
            metadata = locks.status("shown").metadata
        with traced.observer.linked(metadata), locks.lock("next"):
            pass
    assert job.get_span_context().span_id in {link.context.span_id for link in traced.spans("lease hold")[-1].links}


def test_prometheus_holds_end_with_a_hand_over_and_a_lapse() -> None:
    """P3: the gauge comes back to nothing without anybody looking after handles."""
    registry = CollectorRegistry()
    with connect(PrometheusObserver(registry)) as locks:
        locks.lock("a", name="report", ttl=30).acquire().hand_over()
        kept = locks.lock("b", name="report", ttl=0.3).acquire()
        assert registry.get_sample_value("leased_held", {"lock": "report"}) == 1
        until(lambda: registry.get_sample_value("leased_held", {"lock": "report"}) == 0, what="the lapse is told")
        assert kept.lost
    assert registry.get_sample_value("leased_hold_seconds_count", {"lock": "report"}) == 2


def test_other_events_are_notes_on_the_current_span() -> None:
    """What happens to a hold meanwhile is seen on whatever span it happens in."""
    traced = Traced()
    with traced.tracers.get_tracer("test").start_as_current_span("job"):
        traced.observer(Event("at_risk", "key", "report", {"fencing_token": 7}))
        traced.observer(Event("clock_warning", "", None, {"store": "redis://h", "step": 1.0}))
    (job,) = traced.spans("job")
    assert [(one.name, one.attributes["leased.fencing_token"]) for one in job.events] == [("lease at_risk", 7)]


def test_logging_writes_every_event(caplog: pytest.LogCaptureFixture) -> None:
    """P3: each with its data, at its level, and none with a token."""
    with caplog.at_level(logging.DEBUG, "leased.events"), connect(LogObserver()) as locks:
        handle = locks.lock("key").acquire()
        handle.release()
    told = [record for record in caplog.records if record.name == "leased.events"]
    assert [record.leased["event"] for record in told] == ["acquired", "released"]  # type: ignore[attr-defined]
    assert all(handle.token not in record.getMessage() for record in told)
    assert f"fencing_token={handle.fencing_token}" in told[0].getMessage()
    quiet = LogObserver(logging.getLogger("quiet"), level=logging.INFO)
    with caplog.at_level(logging.WARNING, "quiet"):
        quiet(Event("acquired", "key"))
        quiet(Event("lost", "key", None, {"reason": "expired"}))
    assert [record.getMessage() for record in caplog.records if record.name == "quiet"] == [
        "lease on 'key': lost (reason=expired)"
    ]


def test_labels_stay_few() -> None:
    """P3: with 100,000 keys there is one series, and with a thousand names no more than the limit and one."""
    registry, traced = CollectorRegistry(), Traced()
    counting = PrometheusObserver(registry)
    for number in range(100_000):
        counting(Event("renewed", f"key-{number}"))
    for number in range(1000):
        together(counting, traced.observer)(Event("renewed", f"key-{number}", f"name-{number}"))
    traced.observer(Event("renewed", "key"))
    samples = [sample for metric in registry.collect() for sample in metric.samples]
    labels = {sample.labels["lock"] for sample in samples if "lock" in sample.labels}
    assert len(labels) == MAX_LABELS + 2
    assert {"other", "unnamed"} <= labels
    assert {point.attributes["leased.lock"] for point in traced.points("leased.events")} == labels
    assert not any("key-" in label for label in labels)


def test_open_holds_are_bounded() -> None:
    """A hold whose end is never told does not stay for ever: the first ones make room, and are settled."""
    forgotten: list[int] = []
    held: OpenHolds[int] = OpenHolds(forgotten.append, most=3)
    for number in range(5):
        held.begin(Event("acquired", f"key-{number}", None, {"fencing_token": number}), number, at=0.0)
    assert (len(held), forgotten) == (3, [0, 1])
    assert held.end(Event("released", "key-0", None, {"fencing_token": 0})) is None
    ended = held.end(Event("released", "key-4", None, {"fencing_token": 4}))
    assert ended is not None
    assert ended.kept == 4
    assert held.end(Event("lost", "key-4", None, {"fencing_token": 4})) is None


def test_without_an_observer_it_costs_next_to_nothing() -> None:
    """P3: an event that nobody wants costs less than 2 µs, and a grant with its release tells no more than two."""
    env: Any = Env(clock=Any, chance=Any, mint=Any, lines=Any)  # type: ignore[arg-type]
    data = {"fencing_token": 7}
    spent = timeit.repeat(
        lambda: env.tell("renewed", "key", lock="name", data=data), number=1000, repeat=50, timer=time.process_time
    )
    assert min(spent) / 1000 < 2e-6
    seen: list[Event] = []
    with connect(seen.append) as locks, locks.lock("key"):
        pass
    assert len(seen) == 2


def test_a_broken_sink_harms_no_lock(caplog: pytest.LogCaptureFixture) -> None:
    """P3: what an observer raises is logged, others are told all the same, and the lock works."""
    seen: list[str] = []

    def broken(event: Event) -> None:
        raise RuntimeError("the sink is broken")

    with (
        caplog.at_level(logging.ERROR, "leased"),
        connect(together(broken, lambda event: seen.append(event.name))) as locks,
    ):
        with locks.lock("key"):
            assert locks.status("key").held
        assert not locks.status("key").held
    assert seen == ["acquired", "released"]
    assert _failures(caplog) == 2


class Stops(BaseException):
    """What no `except Exception` catches."""


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt, Stops, asyncio.CancelledError, GeneratorExit])
def test_a_sink_that_ends_its_thread_ends_no_renewals(
    caplog: pytest.LogCaptureFixture, raised: type[BaseException]
) -> None:
    """P3, M3: what it raises where leases are renewed is logged there, and all others are renewed on."""
    renewed: set[str] = set()

    def stopping(event: Event) -> None:
        if event.key == "told" and event.name in ("renewed", "lost"):
            raise raised
        if event.name == "renewed":
            renewed.add(event.key)

    with caplog.at_level(logging.ERROR, "leased"), connect(stopping) as locks, locks.lock("kept", ttl=1.5) as kept:
        lapsed = locks.lock("told", ttl=0.3).acquire()
        until(lambda: lapsed.lost and _failures(caplog), what="its loss was told by the thread that notices losses")
        with locks.lock("told", ttl=1.5, wait=5):
            until(lambda: _failures(caplog) >= 3, what="its renewals were told by the threads that renew")
        renewed.clear()
        until(lambda: "kept" in renewed, what="the others are renewed after that")
        assert not kept.lost


@pytest.mark.parametrize("raised", [Stops, asyncio.CancelledError, GeneratorExit])
def test_a_sink_that_ends_its_task_ends_no_renewals(
    caplog: pytest.LogCaptureFixture, raised: type[BaseException]
) -> None:
    """As above on asyncio, where renewals and losses are told in tasks of our own."""
    renewed: set[str] = set()

    def stopping(event: Event) -> None:
        if event.key == "told" and event.name in ("renewed", "lost"):
            raise raised
        if event.name == "renewed":
            renewed.add(event.key)

    async def work() -> None:
        async with aio.connect(f"memory:telemetry-{next(_numbers)}", observer=stopping) as locks:
            told = await locks.lock("told", ttl=0.3).acquire()
            async with locks.lock("kept", ttl=1.5) as kept:
                while not (told.lost and _failures(caplog)):
                    await asyncio.sleep(0.002)
                renewed.clear()
                while "kept" not in renewed:
                    await asyncio.sleep(0.002)
                assert not kept.lost

    with caplog.at_level(logging.ERROR, "leased"):
        asyncio.run(asyncio.wait_for(work(), timeout=20))


def test_a_sink_is_interrupted_where_the_caller_is() -> None:
    """What strikes the caller's own thread meanwhile, such as Ctrl-C, is not swallowed."""

    def stopping(event: Event) -> None:
        if event.name == "contended":
            raise KeyboardInterrupt

    with connect(stopping) as locks, locks.lock("key"), pytest.raises(KeyboardInterrupt):
        locks.lock("key").try_acquire()


def _failures(caplog: pytest.LogCaptureFixture) -> int:
    return len([record for record in caplog.records if "observer failed" in record.getMessage()])


def test_dashboard_and_alerts_ask_for_metrics_that_there_are() -> None:
    """What is handed out for Grafana and Prometheus names our metrics and labels, and nothing else of ours."""
    registry = CollectorRegistry()
    PrometheusObserver(registry)
    ours = {sample for metric in registry.collect() for sample in _names_of(metric.name, metric.type)}
    service = set(re.findall(r"leased_\w+", (ROOT / "src/leased/server/metrics.py").read_text()))
    for name in ("grafana-dashboard.json", "alerts.yml"):
        asked = set(re.findall(r"leased_\w+", (ROOT / "deploy" / name).read_text()))
        assert asked
        assert asked <= ours | service, name
    events = set(get_args(EventName))
    text = (ROOT / "deploy" / "grafana-dashboard.json").read_text() + (ROOT / "deploy" / "alerts.yml").read_text()
    for told in re.findall(r'event=~?\\?"([a-z_|]+)', text):
        assert set(told.split("|")) <= events


def _names_of(name: str, kind: str) -> set[str]:
    """What a metric is called in queries."""
    endings = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"], "gauge": [""]}
    return {name + ending for ending in endings[kind]}
