"""What Prometheus reads: counters by route and status, commit latency, queue, totals; nothing by cell."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from geoveil import __version__

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram:
    """How many observations fell at or below each bound.

    >>> histogram = Histogram((1.0, 2.0))
    >>> for value in (0.5, 1.5, 9.0):
    ...     histogram.observe(value)
    >>> histogram.cumulative(), histogram.total
    ([1, 2, 3], 11.0)
    """

    def __init__(self, bounds: tuple[float, ...] = _BOUNDS_S) -> None:
        self.bounds = bounds
        self.total = 0.0
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, value: float, times: int = 1) -> None:
        """Count an observation."""
        self._counts[bisect.bisect_left(self.bounds, value)] += times
        self.total += value * times

    def cumulative(self) -> list[int]:
        """Counts at or below each bound; the last is the number of observations."""
        sums, running = [], 0
        for count in self._counts:
            running += count
            sums.append(running)
        return sums


class Metrics:
    """Counts of one server process, kept in memory."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        """(route template, status) → requests."""
        self.reports: Counter[str] = Counter(counted=0, repeated=0, refused=0)
        self.estimates: Counter[str] = Counter(made=0, failed=0)
        """Attempts by what became of them; one that failed is made again."""
        self.commit_s = Histogram()
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A number that is read when somebody asks."""
        self.gauges[name] = (text, read)

    def text(self) -> str:
        """Everything in the text format of Prometheus."""
        return "\n".join([*self._lines(), ""])

    def _lines(self) -> Iterator[str]:
        yield from _head("geoveil_info", "gauge", "The program that answers.")
        yield f'geoveil_info{{version="{__version__}"}} 1'
        yield from _head("geoveil_requests_total", "counter", "Requests by route and status.")
        for (route, status), count in sorted(self.requests.items()):
            yield f'geoveil_requests_total{{route="{route}",status="{status}"}} {count}'
        yield from _head("geoveil_reports_total", "counter", "Reports by what became of them.")
        for outcome, count in sorted(self.reports.items()):
            yield f'geoveil_reports_total{{outcome="{outcome}"}} {count}'
        yield from _head(
            "geoveil_estimates_total", "counter", "Attempts at an estimate by outcome."
        )
        for outcome, count in sorted(self.estimates.items()):
            yield f'geoveil_estimates_total{{outcome="{outcome}"}} {count}'
        yield from self._histogram()
        yield from _gauges(self.gauges)

    def _histogram(self) -> Iterator[str]:
        name = "geoveil_commit_seconds"
        yield from _head(name, "histogram", "From the upload to the commit that holds it.")
        sums = self.commit_s.cumulative()
        for bound, count in zip([*map(str, self.commit_s.bounds), "+Inf"], sums, strict=True):
            yield f'{name}_bucket{{le="{bound}"}} {count}'
        yield f"{name}_sum {self.commit_s.total:.6f}"
        yield f"{name}_count {sums[-1]}"


def _gauges(gauges: Mapping[str, tuple[str, Callable[[], float]]]) -> Iterator[str]:
    for name, (text, read) in sorted(gauges.items()):
        yield from _head(name, "gauge", text)
        yield f"{name} {read():g}"


def _head(name: str, kind: str, text: str) -> tuple[str, str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"
