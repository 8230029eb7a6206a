"""Pods that a real Prometheus scrapes while they run, all at once, for their whole lives."""

from typing import NamedTuple

from tests.prometheus.exporter import CPU, Container, Exporter
from tests.prometheus.server import SCRAPE_SECONDS, PrometheusServer

LIVE_SECONDS = 5
LIVE = 4 * SCRAPE_SECONDS / LIVE_SECONDS
"""The tolerance when each scrape comes in time: at both ends an interval, and the duration of a scrape."""


class Lived(NamedTuple):
    """A life.

    suffix: the end of the names of its Pods.
    tolerance: the part of its use that its samples may miss.
    """

    suffix: str
    began: float
    gone_at: float
    tolerance: float


async def live(prometheus: PrometheusServer, exporter: Exporter, suffix: str) -> Lived:
    """Lets the Pods run for LIVE_SECONDS. The names of the Pods end with `suffix`."""
    even, reset, gone = (f"{name}{suffix}" for name in ("even", "reset", "gone"))
    task, sidecar = Container("live", even, "task", 1.5, 200e6), Container("live", even, "sidecar", 0.75, 50e6)
    longer, elsewhere = Container("live", f"{even}-2", "task", 3), Container("other", even, "task", 4)
    begins_anew, ends = Container("live", reset, "task", 2, 70e6), Container("live", gone, "task", 0.5, 30e6)

    async def scraped_until(container: Container, at: float) -> bool:
        """Whether there is a sample younger than `at`."""
        return bool(await prometheus.query(f"timestamp({series(container)}) > {at}"))

    async def is_gone() -> bool:
        return not await prometheus.query(series(ends))

    began = exporter.start(task, sidecar, longer, elsewhere, begins_anew, ends)
    await prometheus.wait_for(lambda: scraped_until(begins_anew, began + LIVE_SECONDS / 2), "the first half of a life")
    reset_at = exporter.start(begins_anew)
    await prometheus.wait_for(lambda: scraped_until(task, began + LIVE_SECONDS), "the other half")
    gone_at = exporter.stop(ends)
    await prometheus.wait_for(is_gone, "the end of a series")
    of_all, of_gone = await samples(prometheus, task), await samples(prometheus, ends)
    missed = max(
        missed_seconds(of_all, began, began + LIVE_SECONDS, reset_at),
        missed_seconds(of_gone, gone_at - LIVE_SECONDS, gone_at),
    )
    return Lived(suffix, began, gone_at, max(LIVE, (missed + 2 * SCRAPE_SECONDS) / LIVE_SECONDS))


def series(container: Container) -> str:
    labels = f'namespace="{container.namespace}",pod="{container.pod}",container="{container.name}"'
    return f"{CPU}{{{labels}}}"


async def samples(prometheus: PrometheusServer, container: Container) -> list[float]:
    """The times of the container's samples. All containers are in each scrape."""
    (found,) = await prometheus.query(f"{series(container)}[10m]")
    return [at for at, _ in found["values"]]


def missed_seconds(times: list[float], began: float, ended: float, reset_at: float | None = None) -> float:
    """The time whose use no two samples tell: at both ends, and before a reset."""
    inside = [at for at in times if began <= at <= ended]
    if len(inside) < 2:
        return ended - began
    edges = inside[0] - began + ended - inside[-1]
    if reset_at is None:
        return edges
    return edges + reset_at - max((at for at in inside if at <= reset_at), default=began)
