"""Our kubelet with several Pods, and with Pods that lack something."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.contract.process_node import ProcessNode, opened, state
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.sides import BOTH_SIDES
from tests.controlplane.waiting import wait_for
from tests.faults.http_proxy import KubeProxy, asks
from tests.faults.http_verbs import hold
from tests.faults.http_verbs import status as answer
from tests.faults.rules import Gate
from tests.rig.dispatching import Place
from tests.rig.postgres import Database

pytestmark = BOTH_SIDES

DISRUPTION = {"rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}


@pytest_asyncio.fixture(loop_scope="session")
async def place(control_plane: ControlPlane, namespace: str, database: Database, tmp_path: Path) -> Place:
    return Place(control_plane, namespace, database, tmp_path)


@pytest_asyncio.fixture(loop_scope="session")
async def node_under_test(place: Place) -> AsyncIterator[ProcessNode]:
    async with opened(place) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def proxy(control_plane: ControlPlane) -> AsyncIterator[KubeProxy]:
    async with KubeProxy(control_plane.url, control_plane.ca_file) as made:
        yield made


async def phases(node_under_test: ProcessNode) -> dict[str, str]:
    """Phase of each Job's Pod, by Job name."""
    return {pod["metadata"]["labels"]["job-name"]: pod["status"]["phase"] for pod in await node_under_test.pods()}


@pytest.mark.slow
async def test_missing_config_map_keeps_the_pod_waiting_until_it_exists(
    node_under_test: ProcessNode,
) -> None:
    secret: Json = {"name": "maybe", "secret": {"secretName": "s", "optional": True}}
    volumes: list[Json] = [{"name": "v", "configMap": {"name": "later"}}, secret]
    mounts = [{"name": "v", "mountPath": "/etc/v"}, {"name": "maybe", "mountPath": "/etc/maybe", "subPath": "in/it"}]
    await node_under_test.job(
        "sh", "-c", 'cat "$1/a"; test -d "$2"; exit 3', "sh", "/etc/v", "/etc/maybe",
        pod={"volumes": volumes}, volumeMounts=mounts, terminationMessagePolicy="FallbackToLogsOnError",
    )  # fmt: skip
    told = await wait_for(
        lambda: [one for one in node_under_test.statuses if "containerStatuses" in one], "a first report", 20
    )
    why = {"reason": "CreateContainerConfigError", "message": 'configmap "later" not found'}
    assert state(told[-1]) == {"waiting": why}
    await node_under_test.make("configmaps", metadata={"name": "later"}, data={"a": "text\n"})
    assert state(await node_under_test.pod("Failed"))["terminated"]["message"] == "text\n"


@pytest.mark.slow
async def test_pod_deleted_before_its_start_ends_and_fails_its_job(node_under_test: ProcessNode) -> None:
    """The Job's finalizer keeps the Pod until it has ended."""
    await node_under_test.job(
        "true", spec={"podFailurePolicy": DISRUPTION}, envFrom=[{"secretRef": {"name": "absent"}}]
    )
    await wait_for(
        lambda: [one for one in node_under_test.statuses if "containerStatuses" in one], "a first report", 20
    )
    await node_under_test.delete_pod(5)
    assert state(await node_under_test.pod("Failed"))["terminated"]["exitCode"] == 137
    await node_under_test.job_conditions("Failed")


async def test_one_of_two_pods_that_are_too_big_together_runs(node_under_test: ProcessNode) -> None:
    half = {"requests": {"cpu": "40"}}
    for name in ("a", "b"):
        await node_under_test.job("sleep", "60", name=name, pod={"nodeName": node_under_test.node.name}, resources=half)

    async def settled() -> bool:
        return sorted((await phases(node_under_test)).values()) == ["Failed", "Running"]

    await wait_for(settled, "one runs and one is refused", 20)


async def test_slow_answer_about_one_pod_delays_no_other_pod(place: Place, proxy: KubeProxy) -> None:
    gate = Gate()
    rule = proxy.add(hold(gate), asks("get", "secrets"))
    async with opened(place, proxy.url) as node_under_test:
        await node_under_test.make("secrets", metadata={"name": "slow"})
        await node_under_test.job("true", name="slow", envFrom=[{"secretRef": {"name": "slow"}}])
        await wait_for(lambda: rule.seen, "its Secret is asked for", 20)
        await node_under_test.job("true", name="quick")

        async def quick_is_over() -> bool:
            return (await phases(node_under_test)).get("quick") == "Succeeded"

        await wait_for(quick_is_over, "the other one runs", 20)
        assert (await phases(node_under_test))["slow"] == "Pending"
        gate.open()

        async def slow_is_over() -> bool:
            return (await phases(node_under_test))["slow"] == "Succeeded"

        await wait_for(slow_is_over, "the slow one runs, too", 20)


@pytest.mark.slow
async def test_refused_report_of_an_end_is_repeated_with_pauses(place: Place, proxy: KubeProxy) -> None:
    async with opened(place, proxy.url) as node_under_test:
        rule = proxy.add(answer(503), asks("update", "pods/status"))
        await node_under_test.job("true")
        await wait_for(lambda: rule.hits >= 1, "a first report was refused", 20)
        began = time.monotonic()
        await wait_for(lambda: rule.hits >= 4, "three more reports", 20)
        assert time.monotonic() - began >= 2
        rule.end()
        await node_under_test.pod("Succeeded")


@pytest.mark.slow
async def test_idle_node_writes_nothing_but_its_lease(place: Place) -> None:
    async with opened(place) as node_under_test:
        await node_under_test.job("true")
        await node_under_test.pod("Succeeded")
        before, seen = renewals(node_under_test, place), writes(node_under_test, place)
        await wait_for(lambda: renewals(node_under_test, place) >= before + 3, "three more signs of life", 30)
        assert writes(node_under_test, place) == seen


def renewals(node_under_test: ProcessNode, place: Place) -> int:
    leases = place.control_plane.audit(verb="update", resource="leases", namespace="kube-node-lease")
    return sum(event.object_ref.name == node_under_test.node.name for event in leases)


def writes(node_under_test: ProcessNode, place: Place) -> int:
    """Writes to its node and to its Pods."""
    plane = place.control_plane
    of_node = [
        one for one in plane.audit(verb="update", resource="nodes") if one.object_ref.name == node_under_test.node.name
    ]
    return len(of_node) + len(plane.audit(verb="update", resource="pods", namespace=place.namespace))
