"""What the API server makes of Pods: of each shape one is read whole in a while, and the newest one counts."""

from collections.abc import Sequence
from typing import Any

import msgspec

from dispatcher.kube.objects import MOST_SHAPES, WHOLE_SECONDS, ReadLately, own_pod_reader, pod_reader
from dispatcher.model import launches as ids
from dispatcher.model.cluster import Pod
from dispatcher.model.needs import PodNeeds, Toleration


def still() -> float:
    """A clock that stands still."""
    return 0


OWNER = {"uid": "job-1", "controller": True}


def a_raw_pod(cpu: str = "3", shape: str = "small", owners: Sequence[Any] = (OWNER,), **spec: Any) -> bytes:
    labels = {ids.MANAGED_BY: ids.MANAGER, ids.LABEL_INSTALLATION: "dispatcher"}
    metadata = {
        "name": "pod", "namespace": "jobs", "uid": "u", "labels": labels, "ownerReferences": owners,
        "annotations": {ids.SHAPE: shape},
    }  # fmt: skip
    container = {"name": "task", "resources": {"requests": {"cpu": cpu}}}
    return msgspec.json.encode({"metadata": metadata, "spec": {"containers": [container], **spec}, "status": {}})


def read_all(*raws: bytes) -> list[PodNeeds | None]:
    read = own_pod_reader(still)
    return [read(raw).needs for raw in raws]


def test_pod_tells_what_the_api_server_made_of_it() -> None:
    (found,) = read_all(
        a_raw_pod(
            overhead={"cpu": "1"},
            nodeSelector={"pool": "x"},
            nodeName="n1",
            schedulingGates=[{"name": "gate"}],
            tolerations=[{"key": "a", "operator": "Exists"}],
            schedulerName="own",
        )
    )
    assert found is not None
    assert dict(found.asks) == {"cpu": 4000, "pods": 1000}
    assert (found.selector, found.scheduler) == ((("pool", "x"),), "own")
    assert found.tolerations == (Toleration("a", "Exists"),)
    assert not found.is_gated, "the next Pod has another node, and its own gates"


def test_one_pod_of_a_shape_is_read_in_a_while() -> None:
    found = read_all(a_raw_pod(), a_raw_pod("9"), a_raw_pod("2", "large"), a_raw_pod("2", ""))
    assert [one is None for one in found] == [False, True, False, True]
    times = iter([0.0, WHOLE_SECONDS - 1, WHOLE_SECONDS])
    lately = ReadLately(lambda: next(times))
    assert [lately.is_due("small") for _ in range(3)] == [True, False, True]


def test_number_of_remembered_shapes_is_bounded() -> None:
    lately = ReadLately(still)
    assert all(lately.is_due(str(number)) for number in range(MOST_SHAPES + 1))
    assert lately.is_due("0"), "it was forgotten"


def test_pod_that_no_job_controls_tells_nothing() -> None:
    """Whoever may create Pods could say otherwise what the Pods of a shape need."""
    assert read_all(a_raw_pod(owners=[]), a_raw_pod(owners=[{"uid": "x"}])) == [None, None]


def test_pods_of_all_namespaces_are_read_so_only_if_asked_for() -> None:
    def own_of(found: Any) -> Pod:
        assert found is not None
        assert found.own is not None
        own: Pod = found.own
        return own

    assert own_of(pod_reader("jobs", "dispatcher", clock=still)(a_raw_pod())).needs is not None
    assert own_of(pod_reader("jobs", "dispatcher")(a_raw_pod())).needs is None
