"""One row with its Jobs and Pods: the stage of its newest launch, launches that have not started, and rests."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from dispatcher.jobs.observed import Rules, TaskWithJobs, stage
from dispatcher.jobs.picture import may_rest, plan_rest, rest_seconds, still_resting
from dispatcher.model.cluster import Pod, PodEnd, PodRefusal
from dispatcher.model.jobs import Job, ObjectWrite, Phase
from dispatcher.model.launches import JobsVerdict, Launch
from dispatcher.model.tasks import Task
from dispatcher.model.verdicts import Hold, HoldReason, Stage
from tests.rig.builders import (
    NOW,
    a_cluster,
    a_complete_job,
    a_failed_job,
    a_job,
    a_pod,
    a_running_task,
    a_task,
    ago,
    an_exited_pod,
    later,
)
from tests.unit.judging import detail_of, judged, reason_of, removed

MINUTE = timedelta(seconds=60)


@pytest.mark.parametrize(
    ("task", "jobs", "last", "newest"),
    [
        (a_task(), [], 0, None),
        (a_task(), [a_job(1, 2), a_failed_job(1, 1)], 2, "job-1-2"),
        (a_running_task(2), [a_failed_job(1, 1), a_job(1, 2)], 2, "job-1-2"),
        (a_running_task(3), [a_job(1, 2)], 3, None),
        (a_running_task(1), [a_job(1, 2)], 2, "job-1-2"),
        (a_task(attempt=2), [a_job(1, 5), a_job(3, 7)], 0, None),
    ],
    ids=["no Jobs", "two Jobs", "row and Jobs agree", "its Job is gone", "its Job is older", "other attempts"],
)
def test_newest_launch_comes_from_the_jobs_of_the_attempt_and_the_row(
    task: Task, jobs: list[Job], last: int, newest: str | None
) -> None:
    row = TaskWithJobs(task, jobs, a_cluster())
    assert row.last == last
    assert (row.job.uid if row.job else None) == newest


def test_pods_are_the_pods_of_the_newest_job() -> None:
    one, two = a_failed_job(1, 1), a_job(1, 2)
    cluster = a_cluster(pods=[a_pod(one), a_pod(two)])
    assert TaskWithJobs(a_task(), [one, two], cluster).pods == [a_pod(two)]
    assert TaskWithJobs(a_task(), [a_job(1, 3)], cluster).pods == ()
    assert TaskWithJobs(a_task(), [], cluster).pods == ()


@pytest.mark.parametrize(
    ("job", "pods", "code"),
    [
        (a_job(suspended=True), [], "Suspended"),
        (a_job(suspended=True), [a_pod()], "Suspended"),
        (a_job(created_at=ago(29)), [], "Starting"),
        (a_job(created_at=ago(30)), [], "Starting: its Job has no Pod yet"),
        (a_complete_job(deleting=True), [], "Ending"),
        (a_job(), [a_pod()], "Starting"),
        (a_job(), [a_pod(waiting_reason="CrashLoopBackOff")], "SidecarCrashes"),
        (
            a_job(),
            [a_pod(waiting_reason="CrashLoopBackOff", waiting_message="back-off 10s, container=proxy")],
            "SidecarCrashes: back-off 10s, container=proxy",
        ),
        (a_job(), [a_pod(unschedulable_since=ago(1))], "Unschedulable"),
        (a_job(), [a_pod(unschedulable_since=ago(1), waiting_message="0/3 nodes")], "Unschedulable: 0/3 nodes"),
        (a_job(), [a_pod(is_gated=True)], "Suspended: by scheduling gates of its Pod"),
        (a_job(), [a_pod(waiting_reason="ImagePullBackOff")], "ImagePull: ImagePullBackOff"),
        (
            a_job(),
            [a_pod(waiting_reason="ErrImagePull", waiting_message="not found")],
            "ImagePull: ErrImagePull: not found",
        ),
        (a_job(), [a_pod(phase="Running")], "Running"),
        (a_job(), [an_exited_pod(exit_code=75, phase="Running", end=None)], "SidecarStays"),
        (a_job(phase=Phase.FAILING), [a_pod(phase="Failed")], "Ending: its Pod has ended, and its Job has not"),
        (a_job(), [a_pod(phase="Succeeded")], "Ending: its Pod has ended, and its Job has not"),
        (a_failed_job(deleting=True), [a_pod(phase="Failed")], "Ending"),
    ],
)
def test_stage_of_a_launch_is_one_word_and_what_the_cluster_says(job: Job, pods: list[Pod], code: str) -> None:
    assert stage(job, pods, NOW) == code
    assert code.partition(":")[0] in set(Stage)


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (PodRefusal(NOW, "violates PodSecurity"), "PodRefused: violates PodSecurity"),
        (PodRefusal(NOW, "exceeded quota: pods", is_quota=True), "QuotaExceeded: exceeded quota: pods"),
    ],
)
def test_refused_pod_is_told_in_the_words_of_the_server(refusal: PodRefusal, told: str) -> None:
    assert stage(a_job(created_at=NOW), [], NOW, refusal) == told
    assert stage(a_job(suspended=True), [], NOW, refusal) == "Suspended"
    assert stage(a_job(), [a_pod()], NOW, refusal) == "Starting"


@pytest.mark.parametrize("reason", [
    "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError",
    "RegistryUnavailable", "SignatureValidationFailed", "CreateContainerConfigError", "CreateContainerError",
    "PreCreateHookError", "PreStartHookError", "RunContainerError",
])  # fmt: skip
def test_container_cannot_start_whatever_kubelet_calls_its_fault(reason: str) -> None:
    assert a_pod(waiting_reason=reason).cannot_start


@pytest.mark.parametrize("reason", ["", "Waiting", "ProviderPending", "Pulling", "CrashLoopBackOff"])
def test_container_that_is_being_created_may_still_start(reason: str) -> None:
    """Virtual nodes have words of their own for what only takes time."""
    pod = a_pod(waiting_reason=reason, waiting_message="" if reason in {"", "CrashLoopBackOff"} else "please wait")
    assert not pod.cannot_start
    if pod.waiting_message:
        assert stage(a_job(), [pod], NOW) == f"Starting: {reason}: please wait"


def test_task_runs_although_a_container_beside_it_cannot_start() -> None:
    pod = a_pod(had_run=True, had_begun=True, waiting_reason="ImagePullBackOff", waiting_message="cannot pull mesh")
    assert (stage(a_job(), [pod], NOW), pod.cannot_start) == ("Running", False)


# States without a time of their own


def test_state_seen_first_now_has_lasted_no_time() -> None:
    assert a_cluster().has_lasted("a", timedelta(0))
    assert not a_cluster().has_lasted("a", MINUTE)


def test_state_lasts_from_its_first_sight() -> None:
    lasted = [a_cluster(first_seen={"a": NOW}, at=later(s)).has_lasted("a", MINUTE) for s in (0, 30, 59, 60, 61)]
    assert lasted == [False, False, False, True, True]


def test_states_are_timed_separately() -> None:
    cluster = a_cluster(first_seen={"a": NOW}, at=later(60))
    assert cluster.has_lasted("a", MINUTE)
    assert not cluster.has_lasted("b", MINUTE)


@pytest.mark.fault(41)
def test_start_deadline_deletes_the_pod_and_never_the_job() -> None:
    job = a_job(created_at=ago(1800), ended_by="us")
    found = judged(a_task(), job, pods=[a_pod(job)])
    assert reason_of(found) is HoldReason.LAUNCHED
    assert found.ends == (ObjectWrite("pods", "pod-of-job-1-1", "pod-of-job-1-1", "the start deadline passed"),)


def test_job_is_noted_before_its_pod_is_deleted() -> None:
    job = a_job(created_at=ago(1800))
    found = judged(a_task(), job, pods=[a_pod(job)])
    cause, version = "the start deadline passed", job.resource_version
    assert found.ends == (ObjectWrite("us", job.name, job.uid, cause, resource_version=version),)


@pytest.mark.parametrize(
    ("task", "job", "pod"),
    [
        (a_task(), {"created_at": ago(1799)}, {}),
        (a_task(), {"suspended": True}, {}),
        (a_task(), {}, {"phase": "Running"}),
        (a_task(), {}, {"had_run": True}),
        (a_task(), {"ended_by": "us"}, {"deleting": True}),
        (a_running_task(), {}, {}),
        (a_task(), {}, {"node_name": ""}),
        (a_task(), {}, {"scheduled_at": ago(1799)}),
    ],
    ids=["in time", "suspended by somebody", "runs", "has run", "is being deleted", "has started", "has no node",
         "has a node in time"],
)  # fmt: skip
def test_start_deadline_is_for_pods_that_never_started(task: Task, job: dict[str, Any], pod: dict[str, Any]) -> None:
    late = a_job(**({"created_at": ago(9000)} | job))
    assert removed(judged(task, late, pods=[a_pod(late, **pod)])) == []


def test_start_deadline_counts_from_the_binding_to_a_node() -> None:
    job = a_job(created_at=ago(90_000), ended_by="us")
    found = judged(a_task(), job, pods=[a_pod(job, scheduled_at=ago(1800))])
    assert removed(found) == [("pods", "pod-of-job-1-1")]


def test_start_deadline_is_a_setting_and_ends_no_job_without_a_pod() -> None:
    job, rules = a_job(created_at=ago(100), ended_by="us"), Rules(start_deadline_seconds=100)
    assert removed(judged(a_task(), job, pods=[a_pod(job)], rules=rules)) == [("pods", "pod-of-job-1-1")]
    assert removed(judged(a_task(), job, rules=rules)) == []


def test_start_deadline_does_not_pass_while_the_job_is_suspended() -> None:
    seen, job = dict[str, datetime](), a_job(created_at=ago(1000), suspended=True)
    judged(a_task(), job, seen=seen)
    resumed = a_job(created_at=ago(1000))
    found = judged(a_task(), resumed, pods=[a_pod(resumed, created_at=later(5000))], seen=seen, at=later(5001))
    assert removed(found) == []


@pytest.mark.fault(27)
def test_refused_pod_ends_a_launch_60_seconds_after_the_first_event() -> None:
    job = a_job(created_at=ago(600))
    known = {job.uid: PodRefusal(NOW, "violates PodSecurity")}
    found = [judged(a_task(), job, at=later(seconds), refusals=known) for seconds in (59, 60)]
    assert [removed(one) for one in found] == [[], [("deadline", job.uid)]]
    assert detail_of(found[1]) == "PodRefused: violates PodSecurity"


@pytest.mark.parametrize(
    ("task", "job", "pods", "refusal"),
    [
        (a_task(), {}, False, PodRefusal(ago(600), "exceeded quota: pods", is_quota=True)),
        (a_task(), {}, False, None),
        (a_task(), {}, True, PodRefusal(ago(600), "no")),
        (a_task(), {"suspended": True}, False, PodRefusal(ago(600), "no")),
        (a_task(), {"deleting": True}, False, PodRefusal(ago(600), "no")),
        (a_running_task(), {}, False, PodRefusal(ago(600), "no")),
    ],
    ids=["quota", "no event", "has a Pod", "suspended", "is being deleted", "has started"],
)
def test_other_launches_without_a_pod_are_waited_for(
    task: Task, job: dict[str, Any], pods: bool, refusal: PodRefusal | None
) -> None:
    one = a_job(**({"created_at": ago(90_000)} | job))
    refusals = {one.uid: refusal} if refusal else {}
    found = judged(task, one, pods=[a_pod(one, node_name="")] if pods else [], refusals=refusals)
    assert reason_of(found) is HoldReason.LAUNCHED
    assert removed(found) == []


@pytest.mark.fault(39)
@pytest.mark.parametrize("reason", ["ErrImagePull", "InvalidImageName", "CreateContainerConfigError"])
def test_broken_image_or_configuration_ends_a_launch_after_60_seconds(reason: str) -> None:
    seen, job = dict[str, datetime](), a_job(created_at=NOW, ended_by="us")
    pod = a_pod(job, waiting_reason=reason)
    verdicts = [judged(a_task(), job, pods=[pod], seen=seen, at=later(s)) for s in (0, 59, 60)]
    assert [removed(found) for found in verdicts] == [[], [], [("pods", pod.uid)]]
    assert verdicts[2].ends[0].cause == reason


def test_sidecar_keeps_no_launch_whose_container_its_node_could_not_start() -> None:
    seen, job = dict[str, datetime](), a_job(created_at=NOW, ended_by="us", report="exit-code")
    end = PodEnd(container="task", exit_code=128, cause="StartError")
    pod = a_pod(job, phase="Running", had_begun=True, exit=end, waiting_reason="StartError", waiting_message="no x")
    assert stage(job, [pod], NOW) == "ImagePull: StartError: no x"
    verdicts = [judged(a_task(), job, pods=[pod], seen=seen, at=later(s)) for s in (0, 59, 60)]
    assert [removed(found) for found in verdicts] == [[], [], [("pods", pod.uid)]]


def test_container_that_is_being_created_is_given_until_the_start_deadline() -> None:
    seen, job = dict[str, datetime](), a_job(created_at=NOW)
    pod = a_pod(job, waiting_reason="CrashLoopBackOff")
    assert [removed(judged(a_task(), job, pods=[pod], seen=seen, at=later(s))) for s in (0, 600)] == [[], []]


BY_EXIT_CODE = Hold(HoldReason.LAUNCHED, Stage.EXIT_CODE)
EXIT = PodEnd(exit_code=1)
LAUNCHED = JobsVerdict(Hold(HoldReason.LAUNCHED, "Running"))
JOB = a_job(resource_version="7")
REST = plan_rest(a_task(id=42), JOB, 120)


def test_row_whose_job_runs_may_rest() -> None:
    assert may_rest(LAUNCHED, JOB, [a_pod(phase="Running")])
    assert may_rest(LAUNCHED, JOB, [])


@pytest.mark.parametrize(
    "found",
    [
        JobsVerdict(None),
        JobsVerdict(Launch(1)),
        JobsVerdict(Hold(HoldReason.FINISHING)),
        JobsVerdict(LAUNCHED.verdict, ends=("something",)),  # type: ignore[arg-type]  # whatever it is
    ],
    ids=["nothing to do", "launch", "finishing", "to remove"],
)
def test_row_with_another_verdict_does_not_rest(found: JobsVerdict) -> None:
    assert not may_rest(found, JOB, [])


def test_ending_job_or_stuck_pod_does_not_rest() -> None:
    assert not may_rest(LAUNCHED, a_job(deleting=True), [])
    assert not may_rest(LAUNCHED, a_job(phase=Phase.FAILING), [])
    assert not may_rest(LAUNCHED, JOB, [a_pod(waiting_reason="ImagePullBackOff")])


@pytest.mark.parametrize("phase", [Phase.COMPLETE, Phase.FAILED])
def test_row_that_the_janitor_will_end_rests_until_then(phase: Phase) -> None:
    """Hundreds of such rows would be judged in each cycle for up to ten seconds."""
    job, pod, verdict = a_job(phase=phase), a_pod(had_run=True, exit=EXIT), JobsVerdict(BY_EXIT_CODE)
    assert may_rest(verdict, job, [pod])
    assert not may_rest(JobsVerdict(Hold(HoldReason.LAUNCHED, Stage.EXITED)), job, [pod]), "its grace ends"
    assert not may_rest(verdict, job, [a_pod(exit=EXIT)]), "whether its group fails is found by the rows that are read"
    assert not may_rest(verdict, job, [a_pod(had_run=True)]), "its Pod may show later that it was told to stop"


def test_row_that_waits_for_a_person_after_an_exit_without_a_report_rests() -> None:
    parked = JobsVerdict(Hold(HoldReason.EXITED_WITHOUT_REPORT))
    assert may_rest(parked, a_job(phase=Phase.COMPLETE), [])
    assert not may_rest(parked, a_job(phase=Phase.COMPLETE, deleting=True), [])
    never_started = JobsVerdict(Hold(HoldReason.LAUNCHES_EXHAUSTED))
    assert not may_rest(never_started, a_job(phase=Phase.FAILED), []), "whether its group fails is found by it"


def test_rests_end_within_half_a_minute_and_not_all_at_once() -> None:
    rests = {rest_seconds(a_task(id=id_), [a_pod(phase="Running")], Rules().rest_seconds, 0) for id_ in range(64)}
    assert len(rests) == 16
    assert all(15 <= seconds < 30 for seconds in rests)


def test_rest_before_the_start_ends_at_its_deadline() -> None:
    assert rest_seconds(a_task(), [a_pod()], 30, 3) == 3
    assert rest_seconds(a_task(), [], 30, 3) == 3
    assert rest_seconds(a_task(), [a_pod(phase="Running")], 30, 3) > 10


def test_rest_goes_on_while_the_job_is_unchanged() -> None:
    assert still_resting({42: REST}, {42: [JOB]}, frozenset(), 101) == {42: REST}


@pytest.mark.parametrize(
    ("jobs", "stuck", "now"),
    [
        ([a_job(resource_version="8")], frozenset(), 101),
        ([], frozenset(), 101),
        ([JOB, a_job(1, 2)], frozenset(), 101),
        ([JOB], frozenset({JOB.uid}), 101),
        ([JOB], frozenset(), REST.until),
    ],
    ids=["changed", "gone", "another Job", "its Pod cannot start", "time is over"],
)
def test_rest_ends_with_any_change(jobs: list[object], stuck: frozenset[str], now: float) -> None:
    assert still_resting({42: REST}, {42: jobs}, stuck, now) == {}  # type: ignore[dict-item]  # Jobs
