"""Events as OpenTelemetry spans and metrics. It configures no exporter: that is the application's.

Spans: `lease wait` from asking to the grant or the refusal, and `lease hold` from the grant to release or loss, both
children of what was current there. They carry the key. A hold is linked to its wait, and to the hold of the same key
that came before it in this process. Metrics carry the names of locks and never a key:

| instrument | attributes | what it counts |
| --- | --- | --- |
| `leased.events` | `leased.event`, `leased.lock` | every event, by its name |
| `leased.wait.duration` | `leased.lock` | seconds from asking to getting the key |
| `leased.hold.duration` | `leased.lock`, `leased.outcome` | seconds from getting the key to its release or loss |
| `leased.held` | `leased.lock` | holds of this process now |
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from leased.contrib.telemetry import MAX_OPEN, Labels, OpenHolds
from leased.observe import Event

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, SpanContext, TracerProvider

_NANOSECONDS = 1_000_000_000


class OpenTelemetryObserver:
    """An observer that makes spans and metrics with these providers; by default with the global ones."""

    def __init__(
        self, *, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
    ) -> None:
        from opentelemetry import metrics, trace

        self._trace = trace
        self._tracer = trace.get_tracer("leased", tracer_provider=tracer_provider)
        meter = metrics.get_meter("leased", meter_provider=meter_provider)
        self._events = meter.create_counter("leased.events", description="Events of locks.")
        self._waits = meter.create_histogram("leased.wait.duration", unit="s", description="To get a key.")
        self._holds = meter.create_histogram("leased.hold.duration", unit="s", description="Keys were held.")
        self._held = meter.create_up_down_counter("leased.held", description="Holds of this process now.")
        self._labels = Labels()
        self._open: OpenHolds[tuple[Span, str]] = OpenHolds(self._forget)
        self._before: OrderedDict[str, SpanContext] = OrderedDict()
        self._mutex = threading.Lock()

    def __call__(self, event: Event) -> None:
        """See `leased.Observer`."""
        lock = self._labels.of(event)
        self._events.add(1, {"leased.event": event.name, "leased.lock": lock})
        if event.name == "acquired":
            self._begin(event, lock, waited=self._wait_span(event))
        elif event.name in ("rejected", "contended"):
            self._wait_span(event)
        elif event.name in ("released", "lost"):
            self._end(event)
        elif event.key:
            self._trace.get_current_span().add_event(f"lease {event.name}", _attributes(event))

    def _wait_span(self, event: Event) -> SpanContext:
        """The span of a wait that is over; its length is known only now."""
        now = time.time_ns()
        waited = float(event.data.get("waited", 0.0))
        span = self._tracer.start_span(
            "lease wait", start_time=now - round(waited * _NANOSECONDS), attributes=_attributes(event)
        )
        span.set_attribute("leased.outcome", event.name)
        span.end(now)
        return span.get_span_context()

    def _begin(self, event: Event, lock: str, *, waited: SpanContext) -> None:
        with self._mutex:
            before = self._before.pop(event.key, None)
        links = [self._trace.Link(one) for one in (waited, before) if one is not None]
        span = self._tracer.start_span("lease hold", links=links, attributes=_attributes(event))
        self._waits.record(float(event.data.get("waited", 0.0)), {"leased.lock": lock})
        self._held.add(1, {"leased.lock": lock})
        self._open.begin(event, (span, lock), at=time.monotonic())

    def _end(self, event: Event) -> None:
        begun = self._open.end(event)
        if begun is None:
            return
        span, lock = begun.kept
        outcome = str(event.data.get("reason", "released"))
        span.set_attribute("leased.outcome", outcome)
        if event.name == "lost":
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, f"the lease was lost: {outcome}"))
        span.end()
        with self._mutex:
            self._before[event.key] = span.get_span_context()
            while len(self._before) > MAX_OPEN:
                self._before.popitem(last=False)
        self._held.add(-1, {"leased.lock": lock})
        seconds = time.monotonic() - begun.at
        self._holds.record(seconds, {"leased.lock": lock, "leased.outcome": outcome})

    def _forget(self, kept: tuple[Span, str]) -> None:
        span, lock = kept
        span.set_attribute("leased.outcome", "unknown")
        span.end()
        self._held.add(-1, {"leased.lock": lock})


def _attributes(event: Event) -> dict[str, Any]:
    """What a span says of an event: the key, the lock's name, and its plain data."""
    told = {f"leased.{name}": value for name, value in event.data.items() if isinstance(value, str | int | float)}
    named = {} if event.lock is None else {"leased.lock": event.lock}
    return {"leased.key": event.key, **named, **told}
