"""The node of a task: one where its cache key ran before, in the pool it names, never another row's private machine."""

import json

import pytest

from dispatcher.placement.placing import cache_digest
from tests.rig.dispatching import Place
from tests.rig.warm_pools import POOL, SIZE, pools


@pytest.mark.slow
async def test_later_runs_of_a_cache_key_land_on_the_first_runs_node(place: Place) -> None:
    async with pools(place, 4, CACHE_ROOT="/var/cache/tasks") as (pool, nodes):
        first = await pool.runs(cache_key="maps")
        assert first["node_name"] in nodes
        later = [await pool.runs(cache_key="maps") for _ in range(4)]
        assert {row["node_name"] for row in later} == {first["node_name"]}
        pod = await pool.pod_of(later[-1])
        notes = pod["metadata"]["annotations"]
        assert json.loads(notes["dispatcher.internal/history-nodes"]) == [first["node_name"]]
        assert notes["dispatcher.internal/cache-key"] == "maps"
        paths = [volume["hostPath"]["path"] for volume in pod["spec"]["volumes"] if "hostPath" in volume]
        assert paths == [f"/var/cache/tasks/dispatcher/{cache_digest('dispatcher', 'default', 'maps')}"]


@pytest.mark.slow
async def test_cache_key_with_a_cordoned_warm_node_runs_elsewhere(place: Place) -> None:
    async with pools(place, 2) as (pool, nodes):
        first = await pool.runs(cache_key="maps")
        await place.control_plane.admin(
            "PATCH", f"/api/v1/nodes/{first['node_name']}", {"spec": {"unschedulable": True}}
        )
        second = await pool.runs(cache_key="maps")
        assert {first["node_name"], second["node_name"]} == set(nodes)
        third = await pool.pod_of(await pool.runs(cache_key="maps"))
        assert json.loads(third["metadata"]["annotations"]["dispatcher.internal/history-nodes"]) == [
            second["node_name"], first["node_name"],
        ]  # fmt: skip


@pytest.mark.slow
async def test_private_machine_runs_only_its_rows(place: Place) -> None:
    plane, name = place.control_plane, place.namespace
    place.template("default", row_may_set="private_machine", machines=name)
    taint = {"key": "dispatcher.internal/private-machine", "value": name, "effect": "NoSchedule"}
    (mine,) = await plane.add_nodes(
        1, labels={"dispatcher.internal/private-machine": name, POOL: name}, taints=[taint], **SIZE  # type: ignore[arg-type]  # cpu, memory
    )  # fmt: skip
    try:
        async with pools(place, 1) as (pool, (theirs,)):
            assert (await pool.runs(spec={"private_machine": name}))["node_name"] == mine
            assert (await pool.runs())["node_name"] == theirs
    finally:
        await plane.remove_node(mine)


@pytest.mark.slow
@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://203.0.113.1:9090"])
async def test_unreachable_prometheus_delays_no_row(place: Place, url: str) -> None:
    async with pools(place, 2, PROMETHEUS_URL=url) as (pool, _):
        assert (await pool.runs(cache_key="maps"))["node_name"]
        pod = await pool.pod_of(await pool.runs(cache_key="maps"))
        assert "dispatcher.internal/real-resources" not in pod["metadata"]["annotations"]
        assert await pool.dispatcher.readiness() == (200, "ok\n")
