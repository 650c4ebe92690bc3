"""Events as OpenTelemetry spans and metrics. It configures no exporter: that is the application's.

Spans: `lease wait` from asking to the grant, the refusal or the error, and `lease hold` from the grant to release, loss
or hand-over, both children of what was current there. They carry the key. A hold is linked to its wait, and to the hold
of the same key that came before it in this process; to one of another process where `linked` is told of it. Metrics
carry the names of locks and never a key:

| instrument | attributes | what it counts |
| --- | --- | --- |
| `leased.events` | `leased.event`, `leased.lock` | every event, by its name |
| `leased.wait.duration` | `leased.lock` | seconds from asking to getting the key |
| `leased.hold.duration` | `leased.lock`, `leased.outcome` | seconds from getting the key to its end here |
| `leased.held` | `leased.lock` | holds of this process now |
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from leased.contrib.telemetry import MAX_OPEN, Held, Labels, OpenHolds, forget_parents
from leased.observe import ENDS, Event

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, SpanContext, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    import leased
    from leased import aio

_NANOSECONDS = 1_000_000_000

_elsewhere: ContextVar[SpanContext | None] = ContextVar("leased_linked", default=None)


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
        self._here = Held()
        self._labels = Labels()
        self._open: OpenHolds[tuple[Span, str]] = OpenHolds(self._forget)
        self.begin_anew()
        forget_parents(self)

    def begin_anew(self) -> None:
        """In a forked child, by itself: what came before was in another process."""
        self._before: OrderedDict[str, SpanContext] = OrderedDict()
        self._mutex = threading.Lock()

    def carrier(self, handle: leased.Handle | aio.Handle | None = None) -> dict[str, str]:
        """Where the hold of this handle stands in its trace, as the W3C's header `traceparent`, to be given to `linked`
        elsewhere: take it before `hand_over`, which ends the hold here. Without a handle, where the running code
        stands. Empty where there is no trace, and for a hold that has ended. It holds no secret."""
        found: dict[str, str] = {}
        if handle is None:
            _propagator().inject(found)
        else:
            kept = self._open.kept(handle.key, handle.fencing_token)
            if kept is not None:
                _propagator().inject(found, self._trace.set_span_in_context(kept[0]))
        return found

    @contextmanager
    def linked(self, carrier: Mapping[str, Any]) -> Iterator[None]:
        """Holds that begin inside, by `restore` or by a grant, are linked to where this carrier comes from.

        `carrier` is what `carrier` gave in another process, or any mapping that holds it, such as the metadata of a
        status; what is no trace links to nothing.
        """
        from opentelemetry.context import Context

        plain = {name: value for name, value in carrier.items() if isinstance(value, str)}
        found = self._trace.get_current_span(_propagator().extract(plain, Context())).get_span_context()
        token = _elsewhere.set(found if found.is_valid else None)
        try:
            yield
        finally:
            _elsewhere.reset(token)

    def __call__(self, event: Event) -> None:
        """See `leased.Observer`."""
        for label, count in self._here.take_inherited().items():  # what the SDK counts goes on in a forked child
            self._held.add(-count, {"leased.lock": label})
        lock = self._labels.of(event)
        self._events.add(1, {"leased.event": event.name, "leased.lock": lock})
        if event.name == "acquired":
            self._waits.record(float(event.data.get("waited", 0.0)), {"leased.lock": lock})
            self._begin(event, lock, waited=self._wait_span(event))
        elif event.name == "restored":
            self._begin(event, lock, waited=None)
        elif event.name in ("rejected", "contended", "acquire_failed"):
            self._wait_span(event)
        elif event.name in ENDS:
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
        if event.name == "acquire_failed":
            told = f"whether the key can be had was not learned: {event.data.get('error')}"
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, told))
        span.end(now)
        return span.get_span_context()

    def _begin(self, event: Event, lock: str, *, waited: SpanContext | None) -> None:
        with self._mutex:
            before = self._before.pop(event.key, None)
        told = {one.span_id: one for one in (_elsewhere.get(), waited, before) if one is not None}
        links = [self._trace.Link(one) for one in told.values()]
        span = self._tracer.start_span("lease hold", links=links, attributes=_attributes(event))
        self._change(lock, 1)
        self._open.begin(event, (span, lock), at=time.monotonic())

    def _end(self, event: Event) -> None:
        begun = self._open.end(event)
        if begun is None:
            return
        span, lock = begun.kept
        outcome = str(event.data.get("reason", event.name))
        span.set_attribute("leased.outcome", outcome)
        if event.name == "lost":
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, f"the lease was lost: {outcome}"))
        span.end()
        with self._mutex:
            self._before[event.key] = span.get_span_context()
            while len(self._before) > MAX_OPEN:
                self._before.popitem(last=False)
        self._change(lock, -1)
        seconds = time.monotonic() - begun.at
        self._holds.record(seconds, {"leased.lock": lock, "leased.outcome": outcome})

    def _forget(self, kept: tuple[Span, str]) -> None:
        span, lock = kept
        span.set_attribute("leased.outcome", "unknown")
        span.end()
        self._change(lock, -1)

    def _change(self, lock: str, by: int) -> None:
        self._here.change(lock, by)
        self._held.add(by, {"leased.lock": lock})


def _propagator() -> TraceContextTextMapPropagator:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()


def _attributes(event: Event) -> dict[str, Any]:
    """What a span says of an event: the key, the lock's name, and its plain data."""
    told = {f"leased.{name}": value for name, value in event.data.items() if isinstance(value, str | int | float)}
    named = {} if event.lock is None else {"leased.lock": event.lock}
    return {"leased.key": event.key, **named, **told}
