"""Writes `docs/metrics.md` from `dispatcher/runtime/metrics.py`. See `make docs`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from prometheus_client.metrics import MetricWrapperBase

from dispatcher.runtime import metrics

PAGE: Final = Path(__file__).with_name("metrics.md")
HEAD: Final = """\
<!-- Made from dispatcher/runtime/metrics.py by `make docs`. Change it there. -->
# Metrics

`GET /metrics` on LISTEN_ADDRESS returns Prometheus text. Values have base units. No label ever holds the name of a
task or a Job. One label holds the name of a node: that of `dispatcher_node_rejections_total`, for as many nodes as had
such Pods.

| name | kind | labels | meaning |
|---|---|---|---|
"""


def metrics_page() -> str:
    return HEAD + "".join(f"{line}\n" for line in rows())


def rows() -> Iterator[str]:
    for metric in vars(metrics).values():
        if isinstance(metric, MetricWrapperBase):
            (family,) = metric.describe()
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = ", ".join(f"`{label}`" for label in metric._labelnames) or "—"  # noqa: SLF001  # no public way to ask
            yield f"| `{name}` | {family.type} | {labels} | {family.documentation} |"


if __name__ == "__main__":
    PAGE.write_text(metrics_page(), encoding="utf-8")
