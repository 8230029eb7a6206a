"""The real use of a cache key's runs: a real Prometheus gives it to the Pods of the next runs, and delays none."""

import json
from datetime import timedelta

import pytest

from dispatcher.model.launches import REAL_RESOURCES
from tests.controlplane.waiting import wait_for
from tests.prometheus.exporter import Container
from tests.prometheus.server import PrometheusServer
from tests.prometheus.traces import Trace
from tests.rig.dispatching import Place
from tests.rig.warm_pools import pools

RAN = """
INSERT INTO dispatch_private.tasks
    (queue, cache_key, status, launch, started_at, finished_at, node_name, pod_name, kind)
SELECT 'default', 'maps', 'succeeded', 1, now() - interval '10 min', now() - interval '5 min', 'n1', $1, 'x'
RETURNING extract(epoch FROM started_at)::float8 AS began
"""


async def ran(place: Place, prometheus: PrometheusServer) -> None:
    """A finished run of five minutes. In Prometheus it used two cores and 512 MiB."""
    admin = await place.database.session("admin")
    await admin.execute("SET session_replication_role = replica")
    pod = f"{place.namespace}-pod"
    began = await admin.fetchval(RAN, pod)
    container = Container(namespace=place.namespace, pod=pod, name="task", cores=2, memory=512 * 2**20)
    trace = Trace(container=container, began=began - 1, ended=began + timedelta(minutes=5).total_seconds())
    await prometheus.write(trace)


@pytest.mark.slow
async def test_next_pods_of_a_cache_key_carry_what_its_runs_used(place: Place, prometheus: PrometheusServer) -> None:
    await ran(place, prometheus)
    async with pools(place, 2, PROMETHEUS_URL=prometheus.url) as (pool, _):
        await pool.runs(cache_key="maps")  # this run starts the query and does not wait for its answer

        async def is_told() -> list[dict[str, str]]:
            pod = await pool.pod_of(await pool.runs(cache_key="maps"))
            told: list[dict[str, str]] = json.loads(pod["metadata"]["annotations"].get(REAL_RESOURCES, "[]"))
            return told

        (used,) = await wait_for(is_told, "a Pod says what the key really uses", 30)
        assert used == {"cpu": "2000m", "memory": "512Mi"}
