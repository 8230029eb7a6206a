"""How a Pod failed, what it waits for, why it was refused, and what autoscalers say of it: its JSON and its Events."""

from datetime import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.jobs.observed import TaskWithJobs
from dispatcher.kube.events import (  # fmt: skip
    LONGEST_MESSAGE,
    MOST_ASKED,
    Turns,
    cause_of,
    jobs_without_pod,
    refusal_of,
)
from dispatcher.kube.job_api import LONGEST_WORDS, answer_of
from dispatcher.kube.objects import read_pod
from dispatcher.kube.pods import MOST_OUTPUT
from dispatcher.kube.wire import EventSeries, EventSource, Meta, RawItems, WireEvent
from dispatcher.model.cluster import LONG_AGO, ClusterView, Pod, PodEnd, PodRefusal, ScaleAnswer
from dispatcher.model.jobs import Job
from dispatcher.model.launches import DOMAIN
from tests.rig.builders import (  # fmt: skip
    NOW,
    a_cluster,
    a_complete_job,
    a_failed_job,
    a_job,
    a_pod,
    a_task,
    ago,
)
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


@pytest.mark.parametrize(
    ("noted", "env", "code"),
    [
        ({f"{DOMAIN}/container": "main"}, None, 1),
        (None, [{"name": "LANG"}, {"name": "TASK_ID", "value": "42"}], 1),
        ({f"{DOMAIN}/container": "task"}, [{"name": "TASK_ID", "value": "42"}], 1),
        ({}, "no list", 0),
        ({}, [{"name": "LANG"}], 0),
    ],
    ids=["by the annotation", "by the contract", "renamed", "unreadable", "of somebody else"],
)
def test_container_of_the_task_is_known_without_its_annotation(
    noted: dict[str, str] | None, env: object, code: int
) -> None:
    """A policy takes annotations from Pods or renames their containers, and a webhook puts its proxy first."""
    ended = [{"name": name, "state": {"terminated": {"exitCode": code}}} for name, code in (("proxy", 0), ("main", 1))]
    main = {"name": "main"} if env is None else {"name": "main", "env": env}
    spec = {"containers": [{"name": "proxy", "env": [{"name": "TASK"}]}, main]}
    pod = {"metadata": {"name": "p", "annotations": noted}, "spec": spec, "status": {"containerStatuses": ended}}
    found = read_pod(written(pod)).exit
    assert found is not None
    assert found.exit_code == code


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
    whole = {"containers": [{"name": "task"}], "resources": {"limits": {"memory": "2Gi"}}}
    assert end_of(pod_of(status, whole)).memory_limit == "2Gi"


def test_the_limit_of_an_init_container_is_its_own() -> None:
    first = {"name": "first", "resources": {"limits": {"memory": "32Mi"}}}
    status = {"phase": "Failed", "initContainerStatuses": [{"name": "first", "state": {"terminated": OOM}}]}
    assert end_of(pod_of(status, {"initContainers": [first], "containers": [{"name": "task"}]})).memory_limit == "32Mi"


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
        ({"deletionTimestamp": "2026-07-01T12:00:32Z", "deletionGracePeriodSeconds": 30}, {}, True),
        ({"deletionTimestamp": "2026-07-01T12:00:33Z", "deletionGracePeriodSeconds": 30}, {}, False),
        ({"deletionTimestamp": "2026-07-01T12:00:03Z"}, {}, False),
        ({}, {"reason": "DeadlineExceeded"}, True),
        ({}, {"reason": "DeadlineExceeded", "startTime": "2026-07-01T11:59:00Z"}, True),
        ({}, {"reason": "DeadlineExceeded", "startTime": "2026-07-01T11:59:01Z"}, False),
        ({}, {"reason": "Terminated", "startTime": "2026-07-01T11:59:01Z"}, True),
        ({}, {"reason": "Evicted", "conditions": [BY_KUBELET | {"lastTransitionTime": "2026-07-01T12:00:21Z"}]}, True),
        ({}, {"reason": "Evicted", "conditions": [BY_KUBELET | {"lastTransitionTime": "2026-07-01T12:00:24Z"}]}, False),
        ({}, {"reason": "Evicted", "conditions": [BY_KUBELET]}, True),
        ({}, {"conditions": [CONDITION | {"lastTransitionTime": "2026-07-01T11:59:59Z"}]}, True),
        ({}, {"conditions": [CONDITION | {"lastTransitionTime": "2026-07-01T12:00:02Z"}]}, True),
        ({}, {"conditions": [CONDITION | {"lastTransitionTime": "2026-07-01T12:00:03Z"}]}, False),
        ({}, {"conditions": [CONDITION]}, True),
        (GONE, {"startTime": "2026-07-01T11:50:00Z", "conditions": [BOUND]}, True),
        (GONE, {"startTime": "2026-07-01T11:54:00Z", "conditions": [BOUND]}, False),
        (GONE, {"startTime": "2026-07-01T12:00:00Z", "conditions": [BOUND]}, False),
    ],
    ids=["never", "deleted at its end", "deleted at its end, by another clock", "deleted after its end",
         "without grace, after its end", "kubelet", "at its limit", "before its limit", "kubelet for another reason",
         "evicted, written after its grace", "evicted long after its end", "evicted at an unknown time", "disrupted",
         "disrupted at its end, by another clock", "disrupted after its end", "disrupted at an unknown time",
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


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (0, {"phase": "Succeeded", "reason": "Completed"}),
        (1, {"phase": "Failed", "reason": "ContainerFailed"}),
        (1, {"phase": "Failed", "reason": "Error: 1"}),
        (0, {"phase": "Running", "reason": "Running"}),
    ],
)
def test_reason_that_only_repeats_how_the_container_ended_is_not_its_cause(code: int, status: dict[str, str]) -> None:
    """Virtual kubelets such as those of interLink and HPK write it, some of them without the time of the start."""
    pod = pod_of({**status, "containerStatuses": [{"name": "task", "state": {"terminated": {"exitCode": code}}}]})
    pod = msgspec.structs.replace(pod, node_name="virtual")
    assert pod.exit is not None
    assert (pod.exit.exit_code, pod.exit.was_told, pod.is_rejected) == (code, False, False)
    job = a_failed_job(report="exit-code") if code else a_complete_job(report="exit-code")
    row = TaskWithJobs(a_task(), [job], a_cluster([msgspec.structs.replace(pod, job_uid=job.uid)]))
    assert row.has_succeeded is (code == 0)


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


def test_exit_0_after_a_stop_at_the_own_storage_limit_is_no_success() -> None:
    ended = {"exitCode": 0, "startedAt": AT, "finishedAt": "2026-07-01T12:00:00Z"}
    statuses = [{"name": "task", "state": {"terminated": ended}}]
    pod = pod_of({"phase": "Failed", "reason": "Evicted", "containerStatuses": statuses})
    job = a_failed_job(report="exit-code")
    row = TaskWithJobs(a_task(), [job], a_cluster([msgspec.structs.replace(pod, job_uid=job.uid)]))
    assert row.has_succeeded is False


@pytest.mark.parametrize(
    ("told", "is_success"), [({}, True), ({"deletionTimestamp": AT}, False)], ids=["by itself", "deleted"]
)
def test_pod_that_succeeded_without_a_container_state_ended_with_0(told: dict[str, str], is_success: bool) -> None:
    pod = read_pod(written({"metadata": {"name": "p", **told}, "status": {"phase": "Succeeded"}}))
    job = a_complete_job(report="exit-code")
    row = TaskWithJobs(a_task(), [job], a_cluster([msgspec.structs.replace(pod, job_uid=job.uid)]))
    assert row.has_succeeded is (True if is_success else None)


@pytest.mark.parametrize(
    ("told", "succeeded"),
    [
        ({}, False),
        ({"reason": "Failed"}, False),
        ({"reason": "OutOfcpu"}, None),
        ({"conditions": [CONDITION]}, None),
        ({"initContainerStatuses": [{"name": "i", "state": {"terminated": OOM}}]}, None),
    ],
    ids=["the phase alone", "the phase twice", "rejected", "disrupted", "an init container failed"],
)
def test_pod_that_failed_without_a_container_state_has_run(told: dict[str, Any], succeeded: bool | None) -> None:
    """The row runs again only while failures are left."""
    pod = pod_of({"phase": "Failed", **told}, {"nodeName": "virtual"})
    job = a_failed_job(report="exit-code")
    row = TaskWithJobs(a_task(), [job], a_cluster([msgspec.structs.replace(pod, job_uid=job.uid)]))
    assert row.has_succeeded is succeeded


def an_event(first: float | None, last: float | None = None, message: str = "no") -> WireEvent:
    return WireEvent(message=message, first_timestamp=at(first), last_timestamp=at(last))


def at(seconds: float | None) -> datetime | None:
    return None if seconds is None else ago(seconds)


def test_job_without_events_is_not_refused() -> None:
    assert refusal_of(()) is None


def test_refusal_began_with_the_first_event_and_has_the_words_of_the_last() -> None:
    events = [an_event(20, 5, "newest"), an_event(60, 50, "oldest"), an_event(30, 10, "between")]
    assert refusal_of(events) == PodRefusal(ago(60), "newest", is_outage=True)


def test_event_without_times_counts_from_its_creation() -> None:
    assert refusal_of([WireEvent(Meta(creation_timestamp=ago(7)))]) == PodRefusal(ago(7), "", is_outage=True)
    assert refusal_of([WireEvent()]) == PodRefusal(LONG_AGO, "", is_outage=True)


FULL = 'pods "job-1-1-x" is forbidden: exceeded quota: pods, requested: pods=1, used: pods=4, limited: pods=4'


def test_quota_is_told_from_other_refusals() -> None:
    found = refusal_of([an_event(1, 1, FULL)])
    assert found is not None
    assert found.is_quota


BY_A_RULE = [
    'Error creating: pods "a" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true',
    'Error creating: pods "a" is forbidden: error looking up service account jobs/x: serviceaccount "x" not found',
    'Error creating: admission webhook "validate.example" denied the request: no team label',
    "Error creating: pods \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
    "Error creating: policy 'm' with binding 'm' denied request: expression 'x' resulted in error: no such key: nodes",
    'Error creating: Pod "a" is invalid: spec.containers[0].image: Required value',
]
OF_NOBODY = [
    'Error creating: Internal error occurred: failed calling webhook "w.example": Post "https://w": connection refused',
    'Error creating: Internal error occurred: failed calling webhook "w.example": context deadline exceeded',
    'Error creating: pods "a" is forbidden: not yet ready to handle request',
    "Error creating: etcdserver: request timed out",
    "Error creating: the server is currently unable to handle the request",
    "Error creating: Timeout: request did not complete within requested timeout - context deadline exceeded",
    "Error creating: the server has received too many requests and has asked us to try again later",
]


@pytest.mark.parametrize("before", [OF_NOBODY[0], FULL], ids=["a webhook was away", "a quota was full"])
def test_refusal_by_a_rule_began_with_the_rule(before: str) -> None:
    """A webhook that is back may refuse all Pods at first. The launches that waited for it get their minute."""
    found = refusal_of([an_event(600, 30, before), an_event(20, 20, BY_A_RULE[2]), an_event(10, 10, BY_A_RULE[2])])
    assert found == PodRefusal(ago(20), BY_A_RULE[2])


@pytest.mark.parametrize(
    ("words", "is_outage"), [*((one, False) for one in BY_A_RULE), *((one, True) for one in OF_NOBODY)]
)
def test_pod_is_refused_by_a_rule_and_not_by_a_server_that_does_not_answer(words: str, is_outage: bool) -> None:
    found = refusal_of([an_event(1, 1, words)])
    assert found is not None
    assert (found.is_outage, cause_of(found)) == (is_outage, "outage" if is_outage else "refused")


def test_long_message_of_a_server_is_cut() -> None:
    found = refusal_of([an_event(1, 1, "x" * 100_000)])
    assert found is not None
    assert len(found.message) == LONGEST_MESSAGE


@pytest.mark.parametrize(
    ("job", "is_asked"),
    [
        (a_job(created_at=ago(15)), True),
        (a_job(created_at=ago(14)), False),
        (a_failed_job(), False),
        (a_job(suspended=True), False),
        (a_job(deleting=True), False),
    ],
)
def test_only_old_active_jobs_are_asked_about(job: Job, is_asked: bool) -> None:
    assert [*jobs_without_pod(view(job))] == [job] * is_asked


def test_job_with_a_pod_is_not_asked_about() -> None:
    mine, other = a_job(), a_job(launch=2)
    assert [*jobs_without_pod(view(mine, other, pods=[a_pod(mine)]))] == [other]


def view(*jobs: Job, pods: Any = ()) -> ClusterView:
    return ClusterView(NOW, {job.name: job for job in jobs}, {pod.name: pod for pod in pods}, {})


def test_all_jobs_get_their_turn() -> None:
    """As many Jobs as two rounds read and one more: the third round begins with the last one."""
    waiting = [a_job(task_id=number, name=f"job-{number:03}") for number in range(2 * MOST_ASKED + 1)]
    turns = Turns(lambda: 0)
    rounds = [[job.name for job in turns.next(reversed(waiting))] for _ in range(3)]
    assert [len(names) for names in rounds] == [MOST_ASKED] * 3
    assert {name for names in rounds for name in names} == {job.name for job in waiting}
    assert rounds[2][0] == waiting[-1].name


def test_round_without_jobs_begins_anew() -> None:
    turns, job = Turns(lambda: 0), a_job()
    assert [[*turns.next(jobs)] for jobs in ([job], [], [job])] == [[job], [], [job]]


DEFAULT = "default-scheduler"


def a_scale_event(
    reason: str, seconds: float = 5, message: str = "words", component: str = "x", **facts: Any
) -> WireEvent:
    return WireEvent(
        reason=reason, message=message, source=EventSource(component), first_timestamp=ago(seconds), **facts
    )


@pytest.mark.parametrize(
    ("event", "comes"),
    [
        (a_scale_event("TriggeredScaleUp", component="cluster-autoscaler"), True),
        (a_scale_event("Nominated", component="karpenter"), True),
        (a_scale_event("NotTriggerScaleUp", component="cluster-autoscaler"), False),
        (a_scale_event("FailedScheduling", component="karpenter"), False),
        (a_scale_event("FailedScheduling", component="", reporting_component="karpenter"), False),
        (a_scale_event("FailedScheduling", component="", reporting_component="eks-auto-mode/compute"), False),
        (a_scale_event("FailedScaleUp", component="cluster-autoscaler"), False),  # GKE: no capacity, or no quota
    ],
)
def test_words_of_autoscalers_are_answers(event: WireEvent, comes: bool) -> None:
    assert answer_of([event], DEFAULT) == ScaleAnswer(comes, ago(5), "words")


@pytest.mark.parametrize("writer", [DEFAULT, "house-scheduler"])
def test_words_of_the_own_scheduler_are_no_answer(writer: str) -> None:
    said = [a_scale_event("FailedScheduling", component=writer)]
    assert (answer_of(said, writer), answer_of(said, "another")) == (None, ScaleAnswer(False, ago(5), "words"))


def test_repeated_event_is_as_new_as_its_last_time() -> None:
    """Clients of events.k8s.io write no lastTimestamp: they count repetitions in a series."""
    repeated = a_scale_event("FailedScheduling", 90, component="karpenter", series=EventSeries(ago(2)))
    new = msgspec.structs.replace(a_scale_event("Nominated"), first_timestamp=None, event_time=ago(5))
    assert answer_of([repeated, new], DEFAULT) == ScaleAnswer(False, ago(2), "words")
    assert answer_of([new], DEFAULT) == ScaleAnswer(True, ago(5), "words")


@pytest.mark.parametrize("reason", ["FailedScheduling", "Scheduled", "Pulled", ""])
def test_words_of_others_are_none(reason: str) -> None:
    assert answer_of([a_scale_event(reason, component=DEFAULT)], DEFAULT) is None
    assert answer_of([], DEFAULT) is None


def test_newest_answer_counts() -> None:
    events = [a_scale_event("TriggeredScaleUp", 5), a_scale_event("NotTriggerScaleUp", 9, last_timestamp=ago(2))]
    assert answer_of(events, DEFAULT) == ScaleAnswer(False, ago(2), "words")
    assert answer_of(events[:1], DEFAULT) == ScaleAnswer(True, ago(5), "words")


def test_words_are_one_line_of_bounded_length() -> None:
    found = answer_of([a_scale_event("NotTriggerScaleUp", message="a\n  b" * 1000)], DEFAULT)
    assert found is not None
    assert found.words.startswith("a ba b")
    assert len(found.words) == LONGEST_WORDS


@pytest.mark.parametrize("time", ["0000-01-01T00:00:00Z", "10000-01-01T00:00:00Z", "soon", 5])
def test_event_that_cannot_be_read_hides_no_other(time: object) -> None:
    """Whoever may write Events wrote one about the Pod of somebody else."""
    good = {"reason": "TriggeredScaleUp", "lastTimestamp": "2026-03-14T12:00:00Z"}
    written = msgspec.json.encode({"items": [{**good, "lastTimestamp": time}, good, {"reason": 7}]})
    (found,) = msgspec.json.decode(written, type=RawItems).readable(WireEvent)
    answer = answer_of([found], DEFAULT)
    assert answer is not None
    assert answer.comes
