"""How a Pod failed, and what it waits for, read from its JSON."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.kube.objects import read_pod
from dispatcher.kube.pods import MOST_OUTPUT
from dispatcher.model.cluster import Pod, PodEnd
from tests.unit.wire import AT, THEN, written

OOM = {"exitCode": 137, "reason": "OOMKilled", "startedAt": AT, "finishedAt": AT}


def pod_of(status: dict[str, Any], spec: dict[str, Any] | None = None) -> Pod:
    return read_pod(written({"metadata": {"name": "p"}, "spec": spec or {}, "status": status}))


def failed(*ended: dict[str, Any], inits: tuple[dict[str, Any], ...] = (), **status: Any) -> Pod:
    """A failed Pod whose containers `task`, `second`, … and init containers `first`, … ended so."""
    containers = [
        {"name": name, "state": {"terminated": one}} for name, one in zip(("task", "second"), ended, strict=False)
    ]
    init = [{"name": "first", "state": {"terminated": one}} for one in inits]
    return pod_of({"phase": "Failed", "containerStatuses": containers, "initContainerStatuses": init, **status})


def end_of(pod: Pod) -> PodEnd:
    assert pod.end is not None
    return pod.end


@pytest.mark.parametrize("phase", ["Pending", "Running", "Succeeded", "Unknown"])
def test_a_pod_that_has_not_failed_has_no_end(phase: str) -> None:
    assert pod_of({"phase": phase, "containerStatuses": [{"name": "task", "state": {"terminated": OOM}}]}).end is None


def test_the_end_of_the_task_is_told() -> None:
    end = end_of(failed({"exitCode": 3, "reason": "Error", "message": "no disk", "startedAt": AT, "finishedAt": AT}))
    assert end == PodEnd(container="task", exit_code=3, cause="Error", output="no disk", started_at=THEN, ended_at=THEN)


def test_the_task_is_told_before_another_container_that_failed() -> None:
    fine, bad = {"exitCode": 0, "reason": "Completed"}, {"exitCode": 7, "reason": "Error"}
    assert end_of(failed(bad, bad)).container == "task"
    assert end_of(failed(fine, bad)).container == "second"
    assert end_of(failed(fine, bad, inits=(bad,))).container == "first"
    assert end_of(failed(bad, inits=(bad,))).container == "task"


def test_a_container_that_failed_before_it_was_restarted_counts() -> None:
    status = {"name": "task", "state": {"running": {}}, "lastState": {"terminated": OOM}}
    assert end_of(pod_of({"phase": "Failed", "containerStatuses": [status]})).cause == "OOMKilled"


def test_a_pod_without_statuses_has_the_words_of_its_node_alone() -> None:
    end = end_of(pod_of({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}))
    assert end == PodEnd(reason="Evicted", message="The node was low on resource: memory.")


def test_a_disruption_is_told_by_its_condition() -> None:
    true = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "lastTransitionTime": AT}
    other = {"type": "Ready", "status": "True", "reason": "no", "lastTransitionTime": AT}
    assert end_of(failed(OOM, conditions=[other, true])).disruption == "PreemptionByScheduler"
    assert end_of(failed(OOM, conditions=[other, true | {"status": "False"}])).reason == ""
    assert end_of(failed(OOM, conditions=[true], reason="Evicted")).reason == "Evicted"


def test_the_limit_is_that_of_the_container_that_failed() -> None:
    containers = [
        {"name": "other", "resources": {"limits": {"memory": "1Gi"}}},
        {"name": "task", "resources": {"limits": {"memory": "64Mi"}}},
    ]
    status = {"phase": "Failed", "containerStatuses": [{"name": "task", "state": {"terminated": OOM}}]}
    assert end_of(pod_of(status, {"containers": containers})).memory_limit == "64Mi"
    assert end_of(pod_of(status, {"containers": [{"name": "task"}]})).memory_limit == ""
    assert end_of(pod_of(status)).memory_limit == ""


def test_a_time_before_all_others_is_no_time() -> None:
    """kubelet writes 1970 for a container that never ran."""
    end = end_of(failed({"exitCode": 128, "reason": "StartError", "startedAt": "1970-01-01T00:00:00Z"}))
    assert (end.started_at, end.ended_at, end.exit_code) == (None, None, 128)


def test_control_characters_of_a_container_are_replaced() -> None:
    """One of them could steer the terminal of whoever reads it, and Postgres stores no NUL."""
    said = "a\x00b\x1b[2Jc\x9bd\te\nf"
    assert end_of(failed({"exitCode": 1, "message": said})).output == "a�b�[2Jc�d\te\nf"


def test_long_output_keeps_its_end_and_a_long_reason_its_beginning() -> None:
    end = end_of(failed({"exitCode": 1, "reason": "r" * 999, "message": "é" * 2000 + "end"}, message="w" * 999))
    assert len(end.output.encode()) <= MOST_OUTPUT
    assert end.output.endswith("éend")
    assert (len(end.cause), len(end.message)) == (300, 300)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({}, ""),
        ({"containerStatuses": [{"name": "task", "state": {"waiting": {"reason": "ErrImagePull"}}}]}, ""),
        ({"containerStatuses": [{"name": "task", "state": {"waiting": {"message": "not found"}}}]}, "not found"),
        ({"initContainerStatuses": [{"name": "i", "state": {"waiting": {"message": "no key"}}}]}, "no key"),
        ({"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}]}, "0/3 nodes"),
        ({"conditions": [{"type": "PodScheduled", "status": "True", "message": "said"}]}, ""),
        ({"conditions": [{"type": "Ready", "status": "False", "message": "said"}]}, ""),
        ({"phase": "Running", "containerStatuses": [{"name": "x", "state": {"waiting": {"message": "x"}}}]}, ""),
    ],
)
def test_a_pending_pod_says_what_it_waits_for(status: dict[str, Any], message: str) -> None:
    assert pod_of(status).waiting_message == message


CONDITION = {"type": "DisruptionTarget", "status": "True"}
BY_KUBELET = CONDITION | {"reason": "TerminationByKubelet"}
BOUND = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-07-01T11:55:00Z"}
GONE = {"deletionTimestamp": "2026-07-01T12:04:00Z"}


@pytest.mark.parametrize(
    ("metadata", "status", "told"),
    [
        ({}, {}, False),
        ({"deletionTimestamp": "2026-07-01T12:00:30Z", "deletionGracePeriodSeconds": 30}, {}, True),
        ({"deletionTimestamp": "2026-07-01T12:00:31Z", "deletionGracePeriodSeconds": 30}, {}, False),
        ({"deletionTimestamp": "2026-07-01T12:00:01Z"}, {}, False),
        ({}, {"reason": "DeadlineExceeded"}, True),
        ({}, {"reason": "DeadlineExceeded", "startTime": "2026-07-01T11:59:00Z"}, True),
        ({}, {"reason": "DeadlineExceeded", "startTime": "2026-07-01T11:59:01Z"}, False),
        ({}, {"reason": "Terminated", "startTime": "2026-07-01T11:59:01Z"}, True),
        ({}, {"reason": "Evicted", "conditions": [BY_KUBELET | {"lastTransitionTime": "2026-07-01T12:00:21Z"}]}, True),
        ({}, {"reason": "Evicted", "conditions": [BY_KUBELET | {"lastTransitionTime": "2026-07-01T12:00:22Z"}]}, False),
        ({}, {"reason": "Evicted", "conditions": [BY_KUBELET]}, True),
        ({}, {"conditions": [CONDITION | {"lastTransitionTime": "2026-07-01T11:59:59Z"}]}, True),
        ({}, {"conditions": [CONDITION | {"lastTransitionTime": "2026-07-01T12:00:01Z"}]}, False),
        ({}, {"conditions": [CONDITION]}, True),
        (GONE, {"startTime": "2026-07-01T11:50:00Z", "conditions": [BOUND]}, True),
        (GONE, {"startTime": "2026-07-01T11:54:00Z", "conditions": [BOUND]}, False),
        (GONE, {"startTime": "2026-07-01T12:00:00Z", "conditions": [BOUND]}, False),
    ],
    ids=["never", "deleted at its end", "deleted after its end", "without grace, after its end",
         "kubelet", "at its limit", "before its limit", "kubelet for another reason",
         "evicted, written after its grace", "evicted long after its end", "evicted at an unknown time", "disrupted",
         "disrupted after its end", "disrupted at an unknown time",
         "by a clock that is 5 min behind", "by a clock that is 1 min behind", "by a clock that is ahead"],
)  # fmt: skip
def test_container_was_told_to_stop_if_that_came_before_its_end(
    metadata: dict[str, Any], status: dict[str, Any], told: bool
) -> None:
    ended = {"exitCode": 0, "finishedAt": "2026-07-01T12:00:00Z"}
    statuses = {"phase": "Succeeded", "containerStatuses": [{"name": "task", "state": {"terminated": ended}}]}
    spec = {"activeDeadlineSeconds": 60, "terminationGracePeriodSeconds": 6}
    pod = read_pod(written({"metadata": {"name": "p", **metadata}, "spec": spec, "status": statuses | status}))
    assert (pod.exit is not None and pod.exit.was_told) == told


MOMENTS = st.sampled_from([
    None, "0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "2026-07-01T12:00:00Z", "9999-12-31T23:59:59Z",
])  # fmt: skip
NUMBERS = st.sampled_from([None, -(2**63), -1, 0, 1, 2**31 - 1, 2**63 - 1])


@given(moments=st.tuples(*[MOMENTS] * 5), numbers=st.tuples(*[NUMBERS] * 3), by=st.sampled_from(["", "Preempted"]))
def test_pod_of_any_times_can_be_read(
    moments: tuple[str | None, ...], numbers: tuple[int | None, ...], by: str
) -> None:
    """Whoever may write Pods in the namespace chooses them. A Pod that cannot be read would end the watch of all."""
    deleted, disrupted, bound, began, ended = moments
    conditions = [
        BY_KUBELET | {"reason": by or BY_KUBELET["reason"], "lastTransitionTime": disrupted},
        BOUND | {"lastTransitionTime": bound},
    ]
    terminated = {"exitCode": 1, "startedAt": began, "finishedAt": ended}
    status = {"phase": "Failed", "reason": "DeadlineExceeded", "startTime": began, "conditions": conditions,
              "containerStatuses": [{"name": "task", "state": {"terminated": terminated}}]}  # fmt: skip
    meta = {"name": "p", "deletionTimestamp": deleted, "deletionGracePeriodSeconds": numbers[0]}
    spec = {"activeDeadlineSeconds": numbers[1], "terminationGracePeriodSeconds": numbers[2]}
    assert read_pod(written({"metadata": meta, "spec": spec, "status": status})).exit is not None


@pytest.mark.parametrize("reason", ["Unknown", "ContainerStatusUnknown"])
@pytest.mark.parametrize("code", [0, 137, 255])
def test_container_that_its_node_has_forgotten_did_not_end_by_itself(reason: str, code: int) -> None:
    ended = {"exitCode": code, "reason": reason, "finishedAt": "2026-07-01T12:00:00Z"}
    pod = pod_of({"phase": "Failed", "containerStatuses": [{"name": "task", "state": {"terminated": ended}}]})
    assert pod.exit is not None
    assert pod.exit.was_told


@pytest.mark.parametrize(("conditions", "told"), [([], False), ([CONDITION], True)], ids=["its own limit", "the node"])
def test_eviction_is_the_end_of_the_container_unless_its_node_needed_room(
    conditions: list[dict[str, str]], told: bool
) -> None:
    statuses = [{"name": "task", "state": {"terminated": {"exitCode": 137, "finishedAt": "2026-07-01T12:00:00Z"}}}]
    status = {"phase": "Failed", "reason": "Evicted", "conditions": conditions, "containerStatuses": statuses}
    pod = pod_of(status)
    assert pod.exit is not None
    assert pod.exit.was_told == told
