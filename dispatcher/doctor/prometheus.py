"""Judges Prometheus by whether it answers, and whether it has the metrics that real use is computed from."""

from collections.abc import Iterator, Mapping

from dispatcher.doctor.cluster import Unread
from dispatcher.doctor.finding import Finding, fault, good


def judge_prometheus(url: str, series: Mapping[str, bool] | Unread) -> Iterator[Finding]:
    """`series`: whether Prometheus has recent samples of each metric."""
    if isinstance(series, Unread):
        yield fault("PrometheusAway", url, series.why, url=url)
        return
    yield good("PrometheusAway", url)
    unknown = sorted(name for name, is_known in series.items() if not is_known)
    if unknown:
        yield fault("MetricUnknown", url, f"it has no recent sample of {', '.join(unknown)}", url=url)
    else:
        yield good("MetricUnknown", url)
