"""Resources that a Pod takes from its node, read from the API: never less than kube-scheduler counts."""

from typing import Any

import msgspec
import pytest

from dispatcher.kube.capacity import read_bound_pod


def a_pod(status: dict[str, Any], **spec: Any) -> bytes:
    containers = [{"name": "task", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}]
    whole = {"nodeName": "a", "containers": containers, **spec}
    return msgspec.json.encode({"metadata": {"name": "p", "namespace": "team"}, "spec": whole, "status": status})


def told(**given: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "task", **given}]}


@pytest.mark.parametrize(
    ("status", "cpu"),
    [
        ({}, 500),
        (told(), 500),
        (told(allocatedResources={"cpu": "1500m"}), 1500),
        (told(resources={"requests": {"cpu": "1"}}), 1000),
        (told(allocatedResources={"cpu": "2"}, resources={"requests": {"cpu": "3"}}), 3000),
        (told(allocatedResources={"cpu": "0.5"}, resources={}), 500),
        (told(allocatedResources={"cpu": "100m"}), 500),
        (told(allocatedResources={"cpu": "much"}), 500),
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
