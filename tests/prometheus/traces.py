"""Samples of containers, as Prometheus would have scraped them some time ago at the intervals of production.

Prometheus receives them by its OpenTelemetry endpoint, each sample with its own time. Two points differ from scraped
samples: a series that ends has no mark of its end, and samples are never late.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from tests.prometheus.exporter import CPU, MEMORY, Container

PATH = "/api/v1/otlp/v1/metrics"
CUMULATIVE = 2
Course = Callable[[float], float]
"""A function of the seconds since a container began: its total use until then, or its use at that time."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """The samples of one container.

    began, ended: its lifetime, in seconds since the epoch.
    every: seconds between two samples.
    after: seconds from `began` to the first sample.
    """

    container: Container
    began: float
    ended: float
    every: float = 15
    after: float = 1
    number: int = 1  # 1 for the first start of the container; each restart has another cgroup
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
    """The body of one write request for all traces."""
    written = list(traces)
    points = {metric: [point for trace in written for point in trace.points(metric)] for metric in (CPU, MEMORY)}
    growing = {"aggregationTemporality": CUMULATIVE, "isMonotonic": True, "dataPoints": points[CPU]}
    metrics = [{"name": CPU, "sum": growing}, {"name": MEMORY, "gauge": {"dataPoints": points[MEMORY]}}]
    return msgspec.json.encode({"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]})
