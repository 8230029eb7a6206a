"""What a Prometheus would have scraped of containers some time ago, at the intervals of production.

It goes in by the door that OpenTelemetry uses, each sample with its own time, and lies there as if it had been scraped.
Two things are not as after scraping: a series that ends is not marked as ended, and no sample is late.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from tests.prometheus.exporter import CPU, MEMORY, Container

PATH = "/api/v1/otlp/v1/metrics"
CUMULATIVE = 2
Course = Callable[[float], float]
"""From the seconds since a container began to what it used until then, or uses then."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One container, from `began` until `ended`, as samples `every` so many seconds, the first `after` some."""

    container: Container
    began: float
    ended: float
    every: float = 15
    after: float = 1
    number: int = 1  # of this container of its Pod: a restart is another cgroup
    job: str = "kubelet"  # of the scraping Prometheus
    used: Course | None = None
    memory: Course | None = None

    def points(self, metric: str) -> Iterator[dict[str, Any]]:
        labels = self.container.labels()
        labels |= {"id": f"{labels['id']}-{self.number}", "name": f"{labels['name']}-{self.number}", "job": self.job}
        attributes = [{"key": name, "value": {"stringValue": value}} for name, value in labels.items()]
        at = self.began + self.after
        while at < self.ended:
            value = self._value(metric, at - self.began)
            yield {"timeUnixNano": str(round(at * 1000) * 10**6), "asDouble": value, "attributes": attributes}
            at += self.every

    def _value(self, metric: str, seconds: float) -> float:
        if metric == CPU:
            return self.used(seconds) if self.used else self.container.cores * seconds
        return self.memory(seconds) if self.memory else self.container.memory


def body(traces: Iterable[Trace]) -> bytes:
    """One request for all of them."""
    told = list(traces)
    points = {metric: [point for trace in told for point in trace.points(metric)] for metric in (CPU, MEMORY)}
    growing = {"aggregationTemporality": CUMULATIVE, "isMonotonic": True, "dataPoints": points[CPU]}
    metrics = [{"name": CPU, "sum": growing}, {"name": MEMORY, "gauge": {"dataPoints": points[MEMORY]}}]
    return msgspec.json.encode({"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]})
