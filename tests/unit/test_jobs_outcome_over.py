"""The table of docs/protocol.md, section 6, line by line: rows whose newest Job is finished or gone."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dispatcher.jobs.observed import TaskWithJobs
from dispatcher.jobs.picture import has_started
from dispatcher.model.cluster import Node, Pod, PodEnd
from dispatcher.model.jobs import EndedBy, Job, Phase
from dispatcher.model.launches import Ask, JobsVerdict, Launch
from dispatcher.model.tasks import TERMINAL, Status, Task
from dispatcher.model.verdicts import NO_CALL, Hold, HoldReason, Stage
from tests.rig.builders import (
    NOW,
    a_cluster,
    a_complete_job,
    a_disrupted_job,
    a_failed_job,
    a_job,
    a_node,
    a_pod,
    a_running_task,
    a_task,
    ago,
    an_exited_pod,
    later,
)
from tests.unit.judging import detail_of, judged, next_launch, reason_of, removed

# processing, max_failures 1, has started | J finished or gone | park


@pytest.mark.parametrize(
    "jobs",
    [(), (a_failed_job(),), (a_disrupted_job(),), (a_complete_job(),), (a_complete_job(uid="other"),)],
    ids=["gone", "failed", "disrupted", "complete", "twin"],
)
def test_started_task_with_max_failures_1_never_runs_again(jobs: tuple[Job, ...]) -> None:
    assert reason_of(judged(a_running_task(max_failures=1), *jobs)) is HoldReason.FAILURES_EXHAUSTED


def test_older_start_with_max_failures_1_ends_the_row_too() -> None:
    found = judged(a_running_task(1, max_failures=1), a_failed_job(1, 2))
    assert reason_of(found) is HoldReason.FAILURES_EXHAUSTED


# waiting, report: exit-code | J Failed, not disrupted, its container had run | the janitor ends the row


def judged_with_exit_code(job: Job, *, had_run: bool = True, task: Task | None = None) -> JobsVerdict:
    return judged(task or a_task(), job, pods=[a_pod(job, phase="Failed", had_run=had_run)])


BY_CODE: dict[str, Any] = {"report": "exit-code"}
NEVER_BEGAN = PodEnd(container="task", exit_code=128, cause="StartError")
SIDECAR_KILLED = PodEnd(container="proxy", exit_code=137)


@pytest.mark.parametrize(
    ("job", "pod", "succeeded"),
    [
        (a_complete_job(**BY_CODE), an_exited_pod(), True),
        (a_failed_job(**BY_CODE), an_exited_pod(None, 3), False),
        (a_failed_job(**BY_CODE), a_pod(phase="Failed", had_run=True), False),
        (a_job(**BY_CODE), an_exited_pod(phase="Running"), True),
        (a_job(**BY_CODE), an_exited_pod(None, 3, phase="Running", end=None), False),
        (a_failed_job(**BY_CODE), an_exited_pod(phase="Failed", end=SIDECAR_KILLED), True),
        (a_disrupted_job(**BY_CODE), an_exited_pod(phase="Failed", end=SIDECAR_KILLED), True),
        (a_disrupted_job(**BY_CODE), an_exited_pod(None, 3), None),
        (a_failed_job(**BY_CODE),
         an_exited_pod(None, 0, was_told=True, phase="Failed", end=PodEnd(reason="DeadlineExceeded")), False),
        (a_job(phase=Phase.FAILING, **BY_CODE), an_exited_pod(None, 3), None),
        (a_job(**BY_CODE), a_pod(phase="Running", had_run=True), None),
        (a_complete_job(**BY_CODE), an_exited_pod(was_told=True), None),
        (a_failed_job(**BY_CODE), an_exited_pod(None, 143, was_told=True), None),
        (a_failed_job(**BY_CODE), an_exited_pod(None, 128, had_run=False, exit=NEVER_BEGAN), None),
        (a_complete_job(), an_exited_pod(), None),
    ],
    ids=["0", "3", "nobody knows the code", "0 beside a sidecar that runs", "3 beside a sidecar that runs",
         "0, then its sidecar was killed", "0, then its Pod was evicted", "3, then its Pod was evicted",
         "told to stop at its run limit", "its Pod is being disrupted", "runs",
         "0 after it was told to stop", "143 after it was told to stop",
         "its node could not start it", "another report"],
)  # fmt: skip
def test_exit_code_of_the_tasks_container_is_the_outcome(job: Job, pod: Pod, succeeded: bool | None) -> None:
    assert TaskWithJobs(a_task(), [job], a_cluster([pod])).has_succeeded is succeeded
    held = judged(a_task(), job, pods=[pod]).verdict
    assert (isinstance(held, Hold) and held.detail == Stage.EXIT_CODE) is (succeeded is not None)


# waiting or processing | J Complete, and nothing proves that its container ended by itself | launch N + 1


@pytest.mark.parametrize("report", ["sql", "exit-code"])
@pytest.mark.parametrize("pods", [[], [an_exited_pod(was_told=True)]], ids=["its Pod is gone", "it was told to stop"])
@pytest.mark.parametrize("task", [a_task(), a_running_task()], ids=["not started", "started"])
def test_exit_0_after_it_was_told_to_stop_is_a_disruption(task: Task, pods: list[Pod], report: str) -> None:
    found = next_launch(task, a_complete_job(report=report), pods=pods)
    assert (found.number, found.unstarted, found.disrupted) == (2, 0, 1)


def test_exit_0_of_another_pod_than_the_one_that_started_is_a_disruption() -> None:
    """The Job was suspended and resumed: its second Pod is refused, and ends with 0."""
    job = a_complete_job()
    found = next_launch(a_running_task(pod_name="before"), job, pods=[an_exited_pod(job, name="after")])
    assert (found.number, found.disrupted) == (2, 1)
    held = judged(a_running_task(pod_name="after"), job, pods=[an_exited_pod(job, name="after")])
    assert reason_of(held) is HoldReason.EXITED_WITHOUT_REPORT


# any | J's container has ended, and another one keeps its Pod | note what its exit says, then let J fail

BESIDE: dict[str, Any] = {"phase": "Running", "end": None}
UNHEARD = a_running_task(heartbeat_at=ago(120))


@pytest.mark.fault(42)
@pytest.mark.parametrize(
    ("task", "code", "note"),
    [
        (a_task(), 1, EndedBy.SIDECAR),
        (UNHEARD, 137, EndedBy.SIDECAR),
        (a_task(), 0, EndedBy.ITSELF),
        (UNHEARD, 0, EndedBy.ITSELF),
        (a_task(), 75, EndedBy.OTHERS),
        (UNHEARD, 75, EndedBy.SIDECAR),
    ],
    ids=["before its start", "a failed run", "0 before its start", "0 without a report", "no start taken", "CMD's 75"],
)
def test_launch_whose_container_has_ended_is_kept_a_minute_by_a_sidecar(task: Task, code: int, note: EndedBy) -> None:
    """The sidecar may never end, and the run limit may be a week."""
    job = a_job()
    pod = an_exited_pod(job, code, **BESIDE)
    assert removed(judged(task, job, pods=[pod], at=ago(1))) == []
    assert removed(judged(task, job, pods=[pod])) == [(note, job.uid)]
    assert removed(judged(task, a_job(ended_by="us"), pods=[pod])) == [(note, job.uid)]
    assert removed(judged(task, a_job(ended_by=note.value), pods=[pod])) == [("deadline", job.uid)]


@pytest.mark.parametrize(
    ("job", "pod"),
    [
        (a_job(), {"exit": PodEnd(container="task", exit_code=1)}),
        (a_job(), {"exit": PodEnd(container="task", exit_code=143, was_told=True, ended_at=ago(60))}),
        (a_job(), {"exit": PodEnd(container="task", exit_code=128, cause="StartError", ended_at=ago(60))}),
        (a_job(), {"deleting": True}),
        (a_job(), {"phase": "Failed"}),
        (a_job(phase=Phase.FAILING), {}),
        (a_job(deleting=True), {}),
    ],
    ids=["at an unknown time", "told to stop", "never began", "its Pod goes", "its Pod has ended", "its Job fails",
         "its Job goes"],
)  # fmt: skip
def test_launch_that_ends_by_itself_or_in_another_way_is_left_alone(job: Job, pod: dict[str, Any]) -> None:
    assert removed(judged(a_task(), job, pods=[an_exited_pod(job, 1, **{**BESIDE, **pod})])) == []


@pytest.mark.parametrize("alive", [{"heartbeat_at": ago(5)}, {"started_at": ago(30), "heartbeat_at": ago(120)}])
def test_launch_that_another_container_has_started_is_left_to_it(alive: dict[str, Any]) -> None:
    """Not every Pod names its container, and then the first one is taken for the task's."""
    job = a_job()
    assert removed(judged(a_running_task(**alive), job, pods=[an_exited_pod(job, 0, **BESIDE)])) == []


@pytest.mark.parametrize(("task", "unstarted"), [(a_task(), 1), (a_running_task(), 0)], ids=["waiting", "processing"])
def test_failure_beside_a_sidecar_counts_and_says_nothing_of_the_image(task: Task, unstarted: int) -> None:
    job = a_failed_job(ended_by="sidecar")
    for pods in ([], [an_exited_pod(job, 1, was_told=True)]):
        launch = next_launch(task, job, pods=pods)
        assert (launch.unstarted, launch.disrupted) == (unstarted, 0)
    assert has_started(task, job, a_cluster()) is None
    third = a_failed_job(1, 3, unstarted=2, ended_by="sidecar")
    assert detail_of(judged(a_task(), third, pods=[])).startswith(NO_CALL)


def test_exit_0_beside_a_sidecar_parks_although_its_job_is_failed() -> None:
    """The work may be done. Its Pod is gone with the Job's end, and the note tells of its exit."""
    job = a_failed_job(ended_by="itself")
    for task in (a_task(), a_running_task()):
        assert reason_of(judged(task, job, pods=[])) is HoldReason.EXITED_WITHOUT_REPORT
    assert next_launch(a_running_task(second_process=True), job, pods=[]).number == 2


# any | a Job under deletion whose Pods have ended | it is over, however long finalizers keep it

ENDED_BUT_KEPT: dict[str, Any] = {"deleting": True, "kept_by": ("backup.example/keep",)}


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_job_that_a_finalizer_keeps_is_over_when_its_pods_have_ended(phase: str) -> None:
    job = a_job(deleting=True)
    pods = [a_pod(job, phase=phase, **ENDED_BUT_KEPT)]
    found = next_launch(a_running_task(), job, pods=pods)
    assert (found.number, found.disrupted, found.disrupted_at, found.ask) == (2, 1, (NOW,), Ask.NOTHING)
    later_attempt = next_launch(a_task(attempt=2), job, pods=pods)
    assert (later_attempt.number, later_attempt.left) == (1, (job.uid,))
    again = a_job(1, 2)
    assert detail_of(judged(a_running_task(2), job, again, pods=[*pods, a_pod(again)])).startswith("Starting")


def test_job_under_deletion_without_a_pod_is_over_after_a_minute() -> None:
    """And it stays over: whoever judges it next, after a held cycle or a restart, finds the same."""
    task, job = a_running_task(), a_job(deleting=True)
    found = [judged(task, job, at=later(seconds)).verdict for seconds in (0, 59, 60, 62, 90_000)]
    assert [isinstance(one, Launch) for one in found] == [False, False, True, True, True]


@pytest.mark.parametrize("pods", [[], [a_pod(phase="Failed", had_run=True, **ENDED_BUT_KEPT)]], ids=["gone", "kept"])
@pytest.mark.parametrize("job", [a_failed_job(deleting=True), a_job(deleting=True)], ids=["failed", "unfinished"])
def test_job_that_a_finalizer_keeps_holds_its_row_for_no_more_than_a_minute(job: Job, pods: list[Pod]) -> None:
    found = judged(a_running_task(), job, pods=pods, at=later(90_000)).verdict
    assert isinstance(found, Launch)
    assert found.number == 2


@pytest.mark.parametrize("phase", ["Running", "Pending"])
def test_job_under_deletion_counts_while_its_pod_runs(phase: str) -> None:
    job = a_job(deleting=True)
    found = judged(a_running_task(), job, pods=[a_pod(job, phase=phase, **ENDED_BUT_KEPT)])
    assert reason_of(found) is HoldReason.LAUNCHED


@pytest.mark.parametrize(
    ("job", "had_run", "task"),
    [
        (a_failed_job(), True, a_task()),
        (a_disrupted_job(report="exit-code"), True, a_task()),
        (a_failed_job(report="exit-code"), False, a_task()),
        (a_failed_job(report="exit-code"), True, a_running_task()),
    ],
    ids=["it can report", "disrupted", "never ran", "it has started, so it can report"],
)
def test_other_failed_launches_are_launched_again(job: Job, had_run: bool, task: Task) -> None:
    assert isinstance(judged_with_exit_code(job, had_run=had_run, task=task).verdict, Launch)


# row's launch < N | J Complete | park: exit 0 without any start


@pytest.mark.fault(43)
@pytest.mark.parametrize("task", [a_task(), a_running_task(1)], ids=["nothing started", "only launch 1 started"])
def test_exit_0_without_any_start_parks_at_once(task: Task) -> None:
    found = judged(task, a_failed_job(1, 1), a_complete_job(1, 2, ended_at=NOW))
    assert reason_of(found) is HoldReason.EXITED_WITHOUT_REPORT
    assert "task_start" in detail_of(found)


# processing, row's launch = N, job_uid is J's uid | J Complete, grace over | park


@pytest.mark.fault(43)
@pytest.mark.parametrize(
    ("seconds", "reason"),
    [(0, HoldReason.LAUNCHED), (59, HoldReason.LAUNCHED), (60, HoldReason.EXITED_WITHOUT_REPORT)],
)
def test_exit_0_without_report_parks_after_60_seconds(seconds: float, reason: HoldReason) -> None:
    job = a_complete_job(ended_at=ago(seconds))
    found = judged(a_running_task(), job)
    assert reason_of(found) is reason
    assert removed(found) == [("itself", job.uid)]


def test_exit_0_of_a_second_process_of_the_pod_counts_as_a_failed_run() -> None:
    first, last = (a_running_task(second_process=True, max_failures=2, failures=number) for number in (0, 1))
    assert reason_of(judged(first, a_complete_job(ended_at=ago(59)))) is HoldReason.LAUNCHED
    launch = next_launch(first, a_complete_job(ended_at=ago(60)))
    assert (launch.number, launch.unstarted, launch.disrupted) == (2, 0, 0)
    assert reason_of(judged(last, a_complete_job(ended_at=ago(60)))) is HoldReason.FAILURES_EXHAUSTED


def test_complete_job_without_end_time_ended_at_its_creation() -> None:
    found = judged(a_running_task(), a_complete_job(ended_at=None, created_at=ago(60)))
    assert reason_of(found) is HoldReason.EXITED_WITHOUT_REPORT


# row's launch = N, other job_uid | J Complete | exit of a refused container: next launch


@pytest.mark.fault(13)
def test_exit_0_of_a_refused_container_is_no_success() -> None:
    found = judged(a_running_task(job_uid="its name's first owner"), a_complete_job())
    assert found.verdict == Launch(2, disrupted=1, disrupted_at=(ago(3600),))


def test_refused_containers_job_has_a_backoff() -> None:
    for job in (a_complete_job(ended_at=NOW), a_complete_job(ended_at=None, created_at=NOW)):
        found = judged(a_running_task(job_uid="its name's first owner"), job)
        assert reason_of(found) is HoldReason.BACKOFF


# J unfinished or over | its Pod is deleted by somebody else | note it on J, while the Pod is there to tell it

GOING: dict[str, Any] = {"phase": "Running", "had_run": True, "deleting": True}
FORGOTTEN = PodEnd(container="task", exit_code=0, was_told=True, cause="Unknown")


@pytest.mark.parametrize("task", [a_task(), a_running_task()], ids=["waiting", "processing"])
@pytest.mark.parametrize(
    ("job", "pod"),
    [
        (a_job(), a_pod(a_job(), **GOING)),
        (a_job(), a_pod(a_job(), deleting=True)),
        (a_failed_job(), an_exited_pod(a_failed_job(), 143, was_told=True, deleting=True)),
        (a_complete_job(), an_exited_pod(a_complete_job(), 0, was_told=True, deleting=True)),
        (a_failed_job(), an_exited_pod(a_failed_job(), 255, was_told=True, exit=FORGOTTEN)),
        (a_job(is_unplaced=True), a_pod(a_job(), **GOING)),
        (a_job(ended_by="us"), a_pod(a_job(), **GOING)),
    ],
    ids=["runs", "has not begun", "has ended by it", "has ended by it with 0", "forgotten by its node",
         "started when it was taken back", "started when it was late"],
)  # fmt: skip
def test_deletion_of_a_pod_by_somebody_else_is_noted_on_its_job(task: Task, job: Job, pod: Pod) -> None:
    assert removed(judged(task, job, pods=[pod])) == [("others", job.uid)]


def test_rejection_by_a_kubelet_is_noted_on_the_job_once() -> None:
    for noted, ends in (("", [(EndedBy.NODE, "uid-1")]), ("node", []), ("us", [])):
        job = a_failed_job(uid="uid-1", ended_by=noted)
        pod = a_pod(job, phase="Failed", deleting=True, end=PodEnd(reason="OutOfpods"))
        assert removed(judged(a_task(), job, pods=[pod])) == ends


@pytest.mark.parametrize("how", [{}, {"is_disrupted": True}, {"phase": "Failed"}], ids=["deleted", "evicted", "ended"])
def test_pod_that_somebody_deletes_while_it_waits_for_a_node_costs_its_row_nothing(how: dict[str, Any]) -> None:
    """Somebody clears away what is pending for long. No row fails because the cluster is full."""
    job = a_job()
    assert removed(judged(a_task(), job, pods=[a_pod(job, node_name="", deleting=True, **how)])) == [("node", job.uid)]
    for made in (a_failed_job, a_disrupted_job):
        found = next_launch(a_task(), made(ended_by="node"))
        assert (found.unstarted, found.disrupted, found.unplaced) == (0, 0, 1)


SILENT = [({}, a_task()), ({}, a_running_task()), ({"report": "exit-code", "ended_at": ago(60)}, a_task())]


@pytest.mark.parametrize(("job", "task"), SILENT, ids=["never started", "never reported", "the janitor is away"])
def test_work_that_ended_with_0_is_not_repeated_when_its_pod_goes(job: dict[str, Any], task: Task) -> None:
    """Whoever removes an empty node removes the Pods that have ended on it."""
    seen = a_complete_job(**{"ended_at": ago(60), **job})
    found = judged(task, seen, pods=[an_exited_pod(seen)])
    assert removed(found) == [("itself", seen.uid)]
    noted = msgspec.structs.replace(seen, ended_by="itself")
    assert judged(task, noted, pods=[]) == msgspec.structs.replace(found, ends=())


@pytest.mark.parametrize(
    ("seen", "left"),
    [
        (a_job(**BY_CODE), a_disrupted_job(**BY_CODE)),
        (a_job(phase=Phase.FAILING, **BY_CODE), a_failed_job(**BY_CODE)),
        (a_complete_job(ended_at=NOW, **BY_CODE), a_complete_job(**BY_CODE)),
    ],
    ids=["is evicted", "is deleted", "has ended"],
)
def test_work_that_ended_with_0_is_not_repeated_when_its_pod_goes_early(seen: Job, left: Job) -> None:
    """A container beside the task may run on until its node is removed. So its Pod goes at once with its end."""
    found = judged(a_task(), seen, pods=[an_exited_pod(seen, phase="Running", deleting=True)])
    assert removed(found) == [("itself", seen.uid)]
    row = TaskWithJobs(a_task(), [msgspec.structs.replace(left, ended_by="itself")], a_cluster())
    assert row.has_succeeded is True


@pytest.mark.parametrize(
    ("job", "pod"),
    [
        (a_complete_job(report="exit-code", ended_at=ago(59)), an_exited_pod()),
        (a_complete_job(), an_exited_pod(was_told=True)),
        (a_failed_job(), an_exited_pod()),
        (a_job(**BY_CODE), an_exited_pod(phase="Running")),
        (a_complete_job(ended_by="itself"), an_exited_pod()),
    ],
    ids=["the janitor will bring it", "told to stop", "its Job has failed", "its Pod stays", "noted"],
)
def test_exit_that_needs_no_note_gets_none(job: Job, pod: Pod) -> None:
    assert removed(judged(a_task(), job, pods=[msgspec.structs.replace(pod, job_uid=job.uid)])) == []


@pytest.mark.parametrize(
    ("job", "pod", "nodes"),
    [
        ({}, a_pod(phase="Running", had_run=True), ()),
        ({"ended_by": "us"}, a_pod(deleting=True), ()),
        ({"ended_by": "others"}, a_pod(**GOING), ()),
        ({}, a_pod(**GOING, is_disrupted=True), ()),
        ({}, an_exited_pod(deleting=True), ()),
        ({}, a_pod(**GOING), (a_node("node-of-pod", unreachable=True),)),
        ({"deleting": True}, a_pod(**GOING), ()),
        ({"suspended": True}, a_pod(**GOING), ()),
        ({"is_unplaced": True}, a_pod(deleting=True), ()),
        ({}, a_pod(phase="Failed", deleting=True), ()),
    ],
    ids=[
        "nobody deletes it",
        "we do",
        "noted",
        "evicted",
        "ended before",
        "its node is lost",
        "its Job goes",
        "its Job is suspended",
        "its Job was taken back",
        "ended before, nobody knows how",
    ],
)
def test_other_pods_need_no_note(job: dict[str, Any], pod: Pod, nodes: tuple[Node, ...]) -> None:
    one = a_job(**job)
    assert removed(judged(a_running_task(), one, pods=[pod], nodes=nodes)) == []


@pytest.mark.parametrize("status", sorted(TERMINAL))
def test_row_that_has_ended_needs_no_note(status: Status) -> None:
    job = a_job()
    assert removed(judged(a_task(status=status, finished_at=NOW), job, pods=[a_pod(job, **GOING)])) == []


@pytest.mark.parametrize(
    ("job", "pods", "counts"),
    [
        (a_failed_job(), [an_exited_pod(a_failed_job(), 143, was_told=True)], (0, 1)),
        (a_failed_job(), [an_exited_pod(a_failed_job(), 143)], (1, 0)),
        (a_failed_job(deleting=True, deleting_since=ago(90)), [], (1, 0)),
        (a_job(deleting=True, deleting_since=ago(90)), [], (0, 1)),
    ],
    ids=["told to stop", "ended with 143", "deleted after its end", "deleted before its end"],
)
def test_launch_that_others_stop_is_disrupted(job: Job, pods: list[Pod], counts: tuple[int, int]) -> None:
    launch = next_launch(a_task(), job, pods=pods)
    assert (launch.unstarted, launch.disrupted) == counts


@pytest.mark.parametrize("by_code", [{}, BY_CODE], ids=["sql", "exit-code"])
@pytest.mark.parametrize("task", [a_task(), a_running_task()], ids=["waiting", "processing"])
@pytest.mark.parametrize("made", [a_failed_job, a_complete_job])
def test_launch_whose_pod_somebody_deleted_is_disrupted(
    by_code: dict[str, Any], task: Task, made: Callable[..., Job]
) -> None:
    job = made(**by_code, ended_by="others")
    launch = next_launch(task, job, pods=[])
    assert (launch.unstarted, launch.disrupted) == (0, 1)
