"""Asks Prometheus whether it has the metrics of containers."""

from dispatcher.doctor.cluster import Unread
from dispatcher.prometheus.client import METRICS, Prometheus, PrometheusFault


async def look(url: str) -> dict[str, bool] | Unread:
    prometheus = Prometheus(url)
    try:
        return {metric: await prometheus.knows(metric) for metric in METRICS}
    except PrometheusFault as fault:
        return Unread(str(fault))
    finally:
        await prometheus.close()
