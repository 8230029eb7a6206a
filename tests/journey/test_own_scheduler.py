"""The scheduler of the chart: kube-scheduler and the extender run with the rights of the chart, and place our Pods."""

import json
import socket

import aiohttp
import pytest

from dispatcher.cli import commands
from dispatcher.extender.configuration import build_configuration
from dispatcher.model.launches import HISTORY_NODES
from dispatcher.settings.loading import load
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.ports import free_ports
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.steps import reaches
from tests.rig.warm_pools import ACCOUNT, Pool, configuration_of, deployed, deployment, pools


def containers_of(objects: tuple[Json, ...]) -> dict[str, Json]:
    (deployment,) = [one for one in objects if one["kind"] == "Deployment"]
    return {one["name"]: one for one in deployment["spec"]["template"]["spec"]["containers"]}


@pytest.mark.slow
async def test_rows_land_on_the_node_where_their_cache_key_ran_last(place: Place) -> None:
    async with (
        deployed(place) as (scheduler, extender),
        pools(place, 4, SCHEDULER_NAME=scheduler.name) as (pool, nodes),
    ):
        first = await pool.runs(cache_key="maps")
        assert first["node_name"] in nodes
        later = [await pool.runs(cache_key="maps") for _ in range(3)]
        assert {row["node_name"] for row in later} == {first["node_name"]}
        assert await extender.metric("dispatcher_history_hits_total", rank="1") == 3
        pod = await pool.pod_of(later[-1])
        assert pod["spec"]["schedulerName"] == scheduler.name
        required = pod["spec"]["affinity"]["nodeAffinity"]
        assert "preferredDuringSchedulingIgnoredDuringExecution" not in required
        key = f"{place.namespace}/{pod['metadata']['name']}"
        assert scheduler.extender_score(key, first["node_name"]) == 30
        check_rights(place)


def check_rights(place: Place) -> None:
    """No request of kube-scheduler or the extender was forbidden, and a lease was among them."""
    user = f"system:serviceaccount:{place.namespace}:{ACCOUNT}"
    asked = place.control_plane.audit(user_prefix=user)
    assert {event.code for event in asked if event.code in {401, 403}} == set()
    assert any(event.object_ref.resource == "leases" for event in asked)


@pytest.mark.slow
@pytest.mark.fault(60)
async def test_rows_wait_while_the_extender_is_down_and_run_afterwards(place: Place) -> None:
    async with deployed(place) as (scheduler, extender), pools(place, 2, SCHEDULER_NAME=scheduler.name) as (pool, _):
        await pool.runs(cache_key="maps")
        await extender.kill()
        task_id = await place.database.insert_task(cache_key="maps")
        await told(pool, "SchedulerError")
        await extender.start()
        await reaches(place, pool.dispatcher, task_id, "succeeded", 30)


class WithExtender(Dispatcher):
    """`dispatcher run --with-extender`, with the administrator's token: the extender reads Pods of all namespaces."""

    def __init__(self, place: Place) -> None:
        plane = place.control_plane
        (self.extender_port,) = free_ports(1)
        config = place.folder / "admin.kubeconfig"
        plane.kubeconfig(config, token=plane.admin_token, namespace=place.namespace)
        super().__init__(place, KUBECONFIG=config, EXTENDER_ADDRESS=f"127.0.0.1:{self.extender_port}")
        self.arguments = ("run", "--with-extender")


@pytest.mark.slow
async def test_one_process_can_dispatch_and_answer_kube_scheduler(place: Place, nodes: list[str]) -> None:
    both = WithExtender(place)
    async with both, place.playing():
        await both.ready()
        task_id = await place.database.insert_task()
        await reaches(place, both, task_id, "succeeded")
        asked = {"Pod": {"metadata": {"annotations": {HISTORY_NODES: json.dumps(nodes[:1])}}}, "NodeNames": nodes[:2]}
        url = f"http://127.0.0.1:{both.extender_port}/prioritize"
        async with aiohttp.ClientSession() as session, session.post(url, json=asked) as answer:
            assert await answer.json() == [{"Host": nodes[0], "Score": 3}, {"Host": nodes[1], "Score": 0}]
        for resource in ("nodes", "pods"):
            assert await both.metric("dispatcher_relists_total", resource=resource, cause="start") == 1, "one watch"
        assert await both.stop() == 0


async def test_taken_extender_port_is_named(place: Place) -> None:
    taken = WithExtender(place)
    with socket.create_server(("127.0.0.1", taken.extender_port)):
        await taken.start()
        assert await taken.process.wait() == 2
    assert taken.log.splitlines()[-1].startswith("DISPATCHER_EXTENDER_ADDRESS is '127.0.0.1:")


async def told(pool: Pool, reason: str) -> None:
    async def is_told() -> bool:
        path = f"/api/v1/namespaces/{pool.place.namespace}/pods"
        pods = (await pool.place.control_plane.admin("GET", path))["items"]
        conditions = [one for pod in pods for one in pod["status"].get("conditions", ())]
        return any(one.get("reason") == reason for one in conditions)

    await wait_for(is_told, f"a Pod says {reason}", 20, check=pool.dispatcher.check)


def test_deployed_scheduler_configuration_is_what_the_program_prints() -> None:
    loaded = load({"DISPATCHER_NAMESPACE": "dispatcher"}, str)
    assert configuration_of(deployment()) == build_configuration(loaded.settings)


def test_extender_is_reached_over_loopback_only() -> None:
    containers = containers_of(deployment())
    assert containers["extender"]["args"][0] in commands.commands
    assert "env" not in containers["extender"], "the default address is loopback"
    (entry,) = configuration_of(deployment())["extenders"]
    assert entry["urlPrefix"] == f"http://{load({}, str).settings.extender.address}"
    assert [port["containerPort"] for port in containers["extender"]["ports"]] == [8080]


@pytest.mark.parametrize("name", ["extender", "kube-scheduler"])
async def test_restricted_pod_security_admits_each_container(
    control_plane: ControlPlane, namespace: str, name: str
) -> None:
    enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
    await control_plane.admin("PATCH", f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": enforced}})
    (found,) = [one for one in deployment() if one["kind"] == "Deployment"]
    template = found["spec"]["template"]
    spec = {**template["spec"], "serviceAccountName": "default", "volumes": template["spec"]["volumes"]}
    spec["containers"] = [one for one in spec["containers"] if one["name"] == name]
    path = f"/api/v1/namespaces/{namespace}/pods"
    made = await control_plane.admin("POST", path, {"metadata": {"name": name}, "spec": spec})
    assert "schedulerName" not in spec, "kube-scheduler must not place its own Pod"
    assert made["spec"]["schedulerName"] == "default-scheduler"
