"""What the service counts of itself, as Prometheus reads it. Labels come from fixed lists; a key is never one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the durations, in seconds; what waited in a line is in the longer ones."""

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


class RouteCounts:
    """Requests of one route: how many ended with each status, and how long they took."""

    __slots__ = ("buckets", "seconds", "statuses")

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}
        self.buckets = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0

    def add(self, status: int, seconds: float) -> None:
        """Count a request that was answered with this status after so many seconds."""
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.buckets[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds


class Metrics:
    """All counts of one process."""

    def __init__(self, gauges: Mapping[str, tuple[str, Callable[[], float]]]) -> None:
        """`gauges`: by name, what is measured and how."""
        self.routes: dict[str, RouteCounts] = {}
        self.outcomes: dict[tuple[str, str], int] = {}
        self._gauges = gauges

    def route(self, name: str) -> RouteCounts:
        """The counts of a route, by its method and path as declared."""
        return self.routes.setdefault(name, RouteCounts())

    def count(self, operation: str, outcome: str, *, number: int = 1) -> None:
        """Count what came of so many operations; both are words of this program."""
        pair = operation, outcome
        self.outcomes[pair] = self.outcomes.get(pair, 0) + number

    def text(self) -> str:
        """Everything, in the text format."""
        lines = [*self._gauge_lines(), *self._outcome_lines(), *self._request_lines(), *self._duration_lines()]
        return "\n".join(lines) + "\n"

    def _gauge_lines(self) -> list[str]:
        lines: list[str] = []
        for name, (meaning, measure) in self._gauges.items():
            lines += _head(name, "gauge", meaning)
            lines.append(f"{name} {measure():g}")
        return lines

    def _outcome_lines(self) -> list[str]:
        lines = _head("leased_operations_total", "counter", "Operations on locks, by what came of them.")
        for (operation, outcome), count in sorted(self.outcomes.items()):
            lines.append(f'leased_operations_total{{operation="{operation}",outcome="{outcome}"}} {count}')
        return lines

    def _request_lines(self) -> list[str]:
        lines = _head("leased_requests_total", "counter", "Requests, by route and HTTP status.")
        for route, counts in sorted(self.routes.items()):
            for status, count in sorted(counts.statuses.items()):
                lines.append(f'leased_requests_total{{route="{route}",status="{status}"}} {count}')
        return lines

    def _duration_lines(self) -> list[str]:
        name = "leased_request_duration_seconds"
        lines = _head(name, "histogram", "How long requests took, waiting included.")
        for route, counts in sorted(self.routes.items()):
            total = 0
            for bound, count in zip((*(f"{bound:g}" for bound in BUCKETS), "+Inf"), counts.buckets, strict=True):
                total += count
                lines.append(f'{name}_bucket{{route="{route}",le="{bound}"}} {total}')
            lines.append(f'{name}_sum{{route="{route}"}} {counts.seconds:.6f}')
            lines.append(f'{name}_count{{route="{route}"}} {total}')
        return lines


def _head(name: str, kind: str, meaning: str) -> list[str]:
    return [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
