"""Pods, nodes and NodeReservations in JSON, and what the API server makes of Pods."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from dispatcher.kube.objects import (
    MOST_SHAPES,
    WHOLE_SECONDS,
    ReadLately,
    own_pod_reader,
    pod_reader,
    read_node,
    read_pod,
    read_priority_class,
)
from dispatcher.kube.reservations import PodWithoutNode, read_reservation, read_waiting
from dispatcher.model import launches as ids
from dispatcher.model.cluster import Pod, PriorityClass
from dispatcher.model.needs import CORDON, PodNeeds, Toleration
from tests.unit.wire import AT, DOMAIN, THEN, a_condition, written

# Pods


def pod_of(status: dict[str, Any] | None = None, **metadata: Any) -> Pod:
    owners = [{"kind": "X", "uid": "other"}, {"kind": "Job", "uid": "job-uid", "controller": True}]
    meta = {
        "name": "p", "uid": "pod-uid", "creationTimestamp": AT, "ownerReferences": owners,
        "annotations": {f"{DOMAIN}/shape": "small"},
    }  # fmt: skip
    names = [one["name"] for one in (status or {}).get("containerStatuses", ())]
    spec = {"nodeName": "node-1", "containers": [{"name": name} for name in names]}
    pod = read_pod(written({"metadata": meta | metadata, "spec": spec, "status": status or {}}))
    assert pod is not None
    return pod


def a_status(name: str = "task", *, last: dict[str, Any] | None = None, **state: Any) -> dict[str, Any]:
    return {"name": name, "ready": False, "restartCount": 0, "state": state, "lastState": last or {}}


def test_a_pod_belongs_to_the_job_that_controls_it() -> None:
    pod = pod_of({"phase": "Running"})
    assert (pod.name, pod.uid, pod.job_uid, pod.shape) == ("p", "pod-uid", "job-uid", "small")
    assert (pod.phase, pod.node_name, pod.created_at, pod.deleting) == ("Running", "node-1", THEN, False)
    assert pod_of(ownerReferences=[]).job_uid == ""
    assert pod_of(deletionTimestamp=AT).deleting


def test_an_empty_object_is_a_pending_pod() -> None:
    pod = read_pod(b"{}")
    assert pod is not None
    assert (pod.phase, pod.had_run, pod.unschedulable_since, pod.waiting_reason) == ("Pending", False, None, "")


@pytest.mark.parametrize("status", ["True", "False"], ids=["placed", "without a node"])
def test_time_of_the_far_future_can_be_reckoned_with(status: str) -> None:
    """Whoever may write the status of a Pod writes it."""
    condition = a_condition("PodScheduled", status) | {"lastTransitionTime": "9999-12-31T23:59:59Z"}
    pod = pod_of({"conditions": [condition]})
    found = pod.scheduled_at or pod.unschedulable_since
    assert found is not None
    assert found + timedelta(weeks=1) > found


@pytest.mark.parametrize(
    ("condition", "since"),
    [
        (a_condition("PodScheduled", "False", "Unschedulable"), THEN),
        (a_condition("PodScheduled", "False", "SchedulerError"), THEN),  # a plugin or an extender fails
        (a_condition("PodScheduled", "False", "SchedulingGated"), None),
        (a_condition("PodScheduled", "True", "Unschedulable"), None),
        (a_condition("Ready", "False", "Unschedulable"), None),
    ],
)
def test_a_pod_is_unschedulable_since_the_scheduler_said_so(condition: dict[str, str], since: datetime | None) -> None:
    pod = pod_of({"conditions": [a_condition("Initialized"), condition]})
    assert pod.unschedulable_since == since
    assert pod.is_gated is (condition["reason"] == "SchedulingGated")


@pytest.mark.parametrize(
    ("statuses", "reason"),
    [
        ({"containerStatuses": [a_status(waiting={"reason": "ImagePullBackOff"})]}, "ImagePullBackOff"),
        ({"containerStatuses": [a_status(waiting={"reason": "ContainerCreating"})]}, ""),
        ({"containerStatuses": [a_status(waiting={})]}, ""),
        ({"containerStatuses": [a_status(running={"startedAt": AT})]}, ""),
        ({"containerStatuses": [a_status(waiting={"reason": "PodInitializing"})],
          "initContainerStatuses": [a_status("init", waiting={"reason": "ErrImagePull"})]}, "ErrImagePull"),
        ({"containerStatuses": [a_status("side", waiting={"reason": "ContainerCreating"}),
                                a_status(waiting={"reason": "InvalidImageName"})]}, "InvalidImageName"),
    ],
)  # fmt: skip
def test_the_waiting_reason_is_read_unless_the_container_starts_normally(statuses: dict[str, Any], reason: str) -> None:
    assert pod_of(statuses).waiting_reason == reason


START_ERROR = {
    "exitCode": 128, "reason": "StartError", "startedAt": "1970-01-01T00:00:00Z", "finishedAt": AT, "message": "no x",
}  # fmt: skip


def test_container_that_its_node_could_not_start_keeps_its_pod_waiting_beside_another_one() -> None:
    own, proxy = a_status(terminated=START_ERROR), a_status("proxy", running={"startedAt": AT})
    stuck = pod_of({"phase": "Running", "containerStatuses": [proxy, own]})
    assert (stuck.waiting_reason, stuck.waiting_message, stuck.cannot_start) == ("StartError", "no x", True)
    runs = a_status(running={"startedAt": AT})
    assert not pod_of({"phase": "Running", "containerStatuses": [runs, own | {"name": "proxy"}]}).cannot_start
    assert not pod_of({"phase": "Failed", "containerStatuses": [own]}).cannot_start


@pytest.mark.parametrize(
    ("statuses", "had_run"),
    [
        ([], False),
        ([a_status(waiting={"reason": "ContainerCreating"})], False),
        ([a_status(running={"startedAt": AT})], True),
        ([a_status(terminated={"exitCode": 3, "startedAt": AT})], True),
        ([a_status(terminated=START_ERROR)], False),
        ([a_status(terminated={"exitCode": 255, "reason": "Unknown", "startedAt": None})], False),
        ([a_status(waiting={"reason": "x"}, last={"terminated": {"exitCode": 1, "startedAt": AT}})], True),
        ([a_status("side", running={"startedAt": AT}), a_status(waiting={"reason": "ErrImagePull"})], False),
        ([a_status("main", running={"startedAt": AT})], True),
    ],
    ids=["none", "being made", "runs", "ended", "could not start", "no time", "before", "only its sidecar", "no task"],
)
def test_a_container_had_run_when_its_process_existed(statuses: list[dict[str, Any]], had_run: bool) -> None:
    assert pod_of({"containerStatuses": statuses}).had_run is had_run


# Nodes


@pytest.mark.parametrize(
    ("wire", "ready", "unreachable"),
    [
        ({"status": {"conditions": [a_condition("Ready")]}}, True, False),
        ({"status": {"conditions": [a_condition("DiskPressure"), a_condition("Ready", "False")]}}, False, True),
        ({"status": {"conditions": [a_condition("Ready", "Unknown")]}}, False, True),
        ({"status": {"conditions": [a_condition("Ready")]},
          "spec": {"taints": [{"key": "other"}, {"key": "node.kubernetes.io/unreachable"}]}}, True, True),
        ({"spec": {"taints": [{"key": "other", "effect": "NoSchedule"}]},
          "status": {"conditions": [a_condition("Ready")]}}, True, False),
        ({}, False, True),
    ],
)  # fmt: skip
def test_a_node_is_unreachable_if_its_kubelet_ends_no_container(
    wire: dict[str, Any], ready: bool, unreachable: bool
) -> None:
    node = read_node(written({"metadata": {"name": "node-1"}} | wire))
    assert (node.name, node.ready, node.unreachable) == ("node-1", ready, unreachable)


def test_cordon_is_a_taint_even_before_the_control_plane_adds_it() -> None:
    of_a_cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    told, untold = ({"unschedulable": True, "taints": taints} for taints in ([of_a_cordon], None))
    assert read_node(written({"spec": told})).taints == read_node(written({"spec": untold})).taints == (CORDON,)


def test_priority_class_is_read() -> None:
    wire = {"metadata": {"name": "high"}, "value": 1000, "globalDefault": True, "preemptionPolicy": "Never"}
    assert read_priority_class(written(wire)) == PriorityClass("high", 1000, is_default=True, never_preempts=True)
    assert read_priority_class(written({"metadata": {"name": "plain"}})) == PriorityClass("plain", 0)


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
    read = own_pod_reader("dispatcher", still)
    return [pod.needs for pod in map(read, raws) if pod is not None]


@pytest.mark.parametrize(
    ("labels", "owner", "is_ours"),
    [
        ({ids.LABEL_INSTALLATION: "dispatcher"}, {}, True),
        ({}, {"kind": "Job", "name": "dispatcher-42-acb5fbef-1r2", "controller": True}, True),
        (None, {"kind": "Job", "name": "dispatcher-42-acb5fbef-1r2", "controller": True}, True),
        ({}, {"kind": "Job", "name": "dispatcher-42-acb5fbef-1r2"}, False),
        ({}, {"kind": "ReplicaSet", "name": "dispatcher-42-acb5fbef-1", "controller": True}, False),
        ({}, {"kind": "Job", "name": "another-42-acb5fbef-1", "controller": True}, False),
        ({}, {"kind": "Job", "name": "migrate", "controller": True}, False),
    ],
)
def test_pod_without_our_label_is_known_by_its_job(
    labels: dict[str, str] | None, owner: dict[str, Any], is_ours: bool
) -> None:
    """A policy that takes labels from Pods hid the ends of runs, and each of them was done again."""
    meta = {"name": "p", "namespace": "jobs", "labels": labels, "ownerReferences": [{"uid": "u", **owner}]}
    raw = written({"metadata": meta})
    assert (own_pod_reader("dispatcher")(raw) is not None) is is_ours
    found = pod_reader("jobs", "dispatcher")(raw)
    assert (found is not None and found.own is not None) is is_ours


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


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pod_that_has_ended_tells_nothing_of_the_next_one(phase: str) -> None:
    """Each list reads it anew. What admission adds may be another by then."""
    assert read_all(a_raw_pod().replace(b'"status":{}', b'"status":{"phase":"%s"}' % phase.encode())) == [None]


def test_pods_of_all_namespaces_are_read_so_only_if_asked_for() -> None:
    def own_of(found: Any) -> Pod:
        assert found is not None
        assert found.own is not None
        own: Pod = found.own
        return own

    assert own_of(pod_reader("jobs", "dispatcher", clock=still)(a_raw_pod())).needs is not None
    assert own_of(pod_reader("jobs", "dispatcher")(a_raw_pod())).needs is None


META = {"name": "r", "namespace": "team", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
SPEC = {"nodeName": "a", "resources": {"cpu": "2", "memory": 5}, "target": {"taskId": 7}, "ttlSeconds": 60}


def kept(**spec: Any) -> bytes:
    return msgspec.json.encode({"metadata": META, "spec": SPEC | spec})


def test_a_reservation_has_node_amounts_target_and_end() -> None:
    one = read_reservation(kept())
    assert one is not None
    assert (one.name, one.node, one.amounts) == ("team/r", "a", {"cpu": 2000, "memory": 5000})
    assert (one.target, one.ends_at - one.made_at) == ("taskId team/7", 60)


@pytest.mark.parametrize(
    "spec",
    [
        {"expiresAt": "0000-01-01T00:00:00Z"}, {"expiresAt": 7}, {"ttlSeconds": 10**12}, {"resources": ["cpu"]},
        {"target": {"taskId": "seven"}}, {"nodeName": None}, {"expiresAt": "2026-01-01T00:00:00"},
        {"expiresAt": "0001-01-01T00:00:00+12:00"}, {"expiresAt": "9999-12-31T23:59:59-12:00"},
    ],
    ids=str,
)  # fmt: skip
def test_an_unreadable_reservation_holds_nothing_and_is_logged(spec: dict[str, Any]) -> None:
    with capture_logs() as told:
        assert read_reservation(kept(**spec)) is None
    assert [(line["name"], line["log_level"]) for line in told] == [("team/r", "warning")]


@pytest.mark.parametrize("amount", ["1e", "much", "-1", "0"])
def test_an_invalid_amount_is_not_held(amount: str) -> None:
    one = read_reservation(kept(resources={"cpu": amount, "memory": "1"}))
    assert one is not None
    assert one.amounts == {"memory": 1000}


def test_a_waiting_pod_has_the_message_of_kube_scheduler() -> None:
    conditions = [
        {"type": "Other", "message": "x"},
        {"type": "PodScheduled", "message": "0/1 nodes", "status": "False"},
    ]
    for told, why in ((conditions, "0/1 nodes"), ([], "")):
        raw = msgspec.json.encode({"metadata": META, "status": {"conditions": told}})
        assert read_waiting(raw) == PodWithoutNode("team/r", "u", why)
