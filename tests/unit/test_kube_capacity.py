"""Resources that a Pod takes from its node, read from the API: never less than kube-scheduler counts."""

from typing import Any

import msgspec
import pytest

from dispatcher.kube.objects import pod_reader, read_bound_pod, read_pod
from dispatcher.kube.pods import MOST_NAMES
from dispatcher.model.launches import LABEL_INSTALLATION, MANAGED_BY, MANAGER


def a_pod(status: dict[str, Any], **spec: Any) -> bytes:
    containers = [{"name": "task", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]
    whole = {"nodeName": "a", "containers": containers, **spec}
    return msgspec.json.encode({"metadata": {"name": "p", "namespace": "team"}, "spec": whole, "status": status})


def told(**given: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "task", **given}]}


def refused(why: str = "Infeasible", **given: Any) -> dict[str, Any]:
    """The node cannot resize the Pod: never, or not now (Deferred)."""
    return {**told(**given), "conditions": [{"type": "PodResizePending", "status": "True", "reason": why}]}


@pytest.mark.parametrize(
    ("status", "cpu"),
    [
        ({}, 500),
        (told(), 500),
        (told(allocatedResources={"cpu": "1500m"}), 1500),
        (told(resources={"requests": {"cpu": "1"}}), 1000),
        (told(allocatedResources={"cpu": "2"}, resources={"requests": {"cpu": "3"}}), 3000),
        (refused(allocatedResources={"cpu": "100m", "memory": "1Gi"}), 100),
        (refused(allocatedResources={"memory": "1Gi"}, resources={"requests": {"cpu": "200m"}}), 200),
        (refused(), 500),
        (refused("Deferred", allocatedResources={"cpu": "100m"}), 500),
        (told(allocatedResources={"cpu": "0.5"}, resources={}), 500),
        (told(allocatedResources={"cpu": "100m"}), 500),
        (told(allocatedResources={"cpu": "much"}), (2**63 - 1) * 1000),  # another server may know more suffixes
        ({"containerStatuses": [{"name": "another", "allocatedResources": {"cpu": "8"}}]}, 500),
    ],
    ids=str,
)
def test_a_resized_container_counts_with_the_larger_amount(status: dict[str, Any], cpu: int) -> None:
    bound = read_bound_pod(a_pod(status))
    assert bound is not None
    assert bound.asks["cpu"] == cpu
    assert bound.asks["memory"] == 2**30 * 1000


def test_a_resource_that_only_the_status_names_counts() -> None:
    bound = read_bound_pod(a_pod(told(allocatedResources={"example.com/gpu": "1"})))
    assert bound is not None
    assert bound.asks["example.com/gpu"] == 1000


def test_a_sidecar_counts_with_its_allocated_resources() -> None:
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}}
    status = {"initContainerStatuses": [{"name": "s", "allocatedResources": {"cpu": "200m"}}]}
    bound = read_bound_pod(a_pod(status, initContainers=[sidecar]))
    assert bound is not None
    assert bound.asks["cpu"] == 700


def test_pods_with_equal_requests_share_one_object() -> None:
    """Otherwise tens of thousands of Pods would fill the memory."""
    one, other = (
        read_bound_pod(a_pod({})),
        read_bound_pod(a_pod(told(allocatedResources={"cpu": "500m", "memory": "1Gi"}))),
    )
    assert one is not None
    assert other is not None
    assert one.asks is other.asks


def test_a_pod_without_a_node_is_not_read() -> None:
    assert read_bound_pod(a_pod({}, nodeName="")) is None


OURS = {MANAGED_BY: MANAGER, LABEL_INSTALLATION: "prod"}


@pytest.mark.parametrize(
    ("namespace", "labels", "is_own"),
    [
        ("jobs", OURS, True),
        ("jobs", OURS | {"more": "labels"}, True),
        ("elsewhere", OURS, False),
        ("jobs", OURS | {LABEL_INSTALLATION: "another"}, False),
        ("jobs", {LABEL_INSTALLATION: "prod"}, True),
        ("jobs", {}, False),
    ],
)
@pytest.mark.parametrize(
    ("node", "phase", "uses_room"),
    [
        ("a", "Running", True),
        ("a", "Pending", True),
        ("", "Pending", False),
        ("a", "Failed", False),
        ("a", "Succeeded", False),
    ],
)
def test_reader_of_all_pods_keeps_ours_and_those_that_use_room(
    namespace: str, labels: dict[str, str], is_own: bool, node: str, phase: str, uses_room: bool
) -> None:
    meta = {"name": "p", "namespace": namespace, "labels": labels}
    raw = msgspec.json.encode({"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": phase}})
    pod = pod_reader("jobs", "prod")(raw)
    if not (is_own or uses_room):
        assert pod is None
        return
    assert pod is not None
    assert (pod.name, pod.node) == (f"{namespace}/p", "a" if uses_room else "")
    assert pod.own == (read_pod(raw) if is_own else None)


def test_cpu_behind_a_thousand_other_names_is_counted() -> None:
    """Names are sorted where they are written."""
    names = {f"a.b/{number:04}": "1" for number in range(3000)} | {"cpu": "60"}
    bound = read_bound_pod(a_pod({}, containers=[{"name": "task", "resources": {"requests": names}}]))
    assert bound is not None
    assert bound.asks["cpu"] == 60_000
    assert len(bound.asks) == MOST_NAMES + 1
