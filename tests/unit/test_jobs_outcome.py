"""The table of docs/protocol.md, section 6, line by line: rows without Jobs, and Jobs that are under way.

Launches that have not started: test_jobs_observed. Finished and missing Jobs: test_jobs_outcome_over. Launch numbers
and budgets: test_jobs_outcome_budgets.
"""

from datetime import datetime
from typing import Any

import pytest

from dispatcher.jobs.observed import Rules
from dispatcher.model.cluster import Node, Pod
from dispatcher.model.jobs import Job, ObjectWrite, Phase
from dispatcher.model.launches import Ask, JobsVerdict, Launch
from dispatcher.model.tasks import Status, Task
from dispatcher.model.verdicts import Hold, HoldReason
from tests.rig.builders import (
    a_complete_job,
    a_disrupted_job,
    a_failed_job,
    a_job,
    a_node,
    a_pod,
    a_running_task,
    a_task,
    ago,
    later,
)
from tests.unit.judging import detail_of, judged, reason_of, removed

OVER = [Status.SUCCEEDED, Status.FAILED, Status.CANCELLED]


# terminal | unfinished | after 60 s delete the Job


@pytest.mark.parametrize("status", OVER)
@pytest.mark.parametrize(("seconds", "ends"), [(0, []), (59, []), (60, [("jobs", "job-1-1")])])
def test_unfinished_job_of_a_terminal_row_is_deleted_after_60_seconds(
    status: Status, seconds: float, ends: list[tuple[str, str]]
) -> None:
    found = judged(a_task(status=status, launch=1, finished_at=ago(seconds)), a_job())
    assert found.verdict is None
    assert removed(found) == ends


@pytest.mark.fault(44)
@pytest.mark.parametrize("status", OVER)
def test_terminal_row_is_never_launched(status: Status) -> None:
    task = a_task(status=status, attempt=2, launch=1, finished_at=ago(600), cancel_requested_at=ago(900))
    found = judged(task, a_job(1), a_job(2, phase=Phase.FAILING), a_failed_job(2, 2), a_job(3))
    assert found.verdict is None
    assert removed(found) == [("jobs", "job-1-1"), ("jobs", "job-2-1"), ("jobs", "job-3-1")]


def test_removal_names_the_object_that_was_judged() -> None:
    job = a_job(resource_version="771")
    found = judged(a_task(status=Status.FAILED, finished_at=ago(60)), job)
    assert found.ends == (ObjectWrite("jobs", job.name, job.uid, "its row is over", resource_version="771"),)


# any | older attempt, unfinished | after 60 s delete the Job; no create


@pytest.mark.parametrize("older", [a_job(1), a_job(1, phase=Phase.FAILING), a_job(1, deleting=True)])
def test_new_attempt_waits_for_the_job_of_an_older_one(older: Job) -> None:
    found = judged(a_task(attempt=2), older)
    assert reason_of(found) is HoldReason.FINISHING
    assert removed(found) == []


def test_job_of_an_older_attempt_is_deleted_60_seconds_after_first_sight() -> None:
    seen, task, job = dict[str, datetime](), a_task(attempt=2), a_job(1, created_at=ago(9000))
    ends = [removed(judged(task, job, seen=seen, at=later(seconds))) for seconds in (0, 59, 60, 70)]
    assert ends == [[], [], [("jobs", "job-1-1")], [("jobs", "job-1-1")]]


def test_older_attempt_comes_before_higher_attempt_cancel_and_superseded() -> None:
    task = a_task(attempt=2, launch=2, cancel_requested_at=ago(600))
    found = judged(task, a_job(1), a_job(3), a_job(2, 1), a_job(2, 2))
    assert detail_of(found) == "attempt 1 is not over yet"
    assert removed(found) == []


def test_finished_job_of_an_older_attempt_is_ignored() -> None:
    found = judged(a_task(attempt=2), a_failed_job(1, 3))
    assert found.verdict == Launch(1, ask=Ask.ALL_JOBS)


# any | higher attempt, unfinished | no create, alarm


@pytest.mark.parametrize("task", [a_task(), a_running_task(), a_task(cancel_requested_at=ago(600))])
def test_job_of_a_higher_attempt_holds_the_row_of_a_restored_database(task: Task) -> None:
    found = judged(task, a_job(2), a_failed_job(1))
    assert reason_of(found) is HoldReason.FINISHING
    assert "restored" in detail_of(found)
    assert removed(found) == []


def test_finished_job_of_a_higher_attempt_does_not_hold_the_row() -> None:
    assert judged(a_task(), a_complete_job(2)).verdict == Launch(1)


# cancel asked | unfinished / none | after the grace delete the Job / never create


@pytest.mark.parametrize(("seconds", "ends"), [(0, []), (59, []), (60, [("jobs", "job-1-1")])])
def test_cancelled_task_has_60_seconds_to_stop(seconds: float, ends: list[tuple[str, str]]) -> None:
    found = judged(a_running_task(cancel_requested_at=ago(seconds)), a_job())
    assert reason_of(found) is HoldReason.FINISHING
    assert removed(found) == ends


@pytest.mark.parametrize("jobs", [(), (a_failed_job(),), (a_complete_job(),), (a_disrupted_job(),)])
def test_cancelled_task_is_never_launched_again(jobs: tuple[Job, ...]) -> None:
    found = judged(a_running_task(cancel_requested_at=ago(600)), *jobs)
    assert reason_of(found) is HoldReason.FINISHING
    assert removed(found) == []


def test_cancel_comes_before_a_superseded_job() -> None:
    found = judged(a_running_task(2, cancel_requested_at=ago(1)), a_job(1, 1), a_job(1, 2))
    assert detail_of(found) == "a cancel was asked"
    assert removed(found) == []


# any | unfinished, n < N | delete it; no create


@pytest.mark.parametrize(
    "jobs",
    [
        (a_job(1, 1), a_job(1, 2)),
        (a_job(1, 1), a_failed_job(1, 2)),
        (a_job(1, 1),),
        (a_complete_job(1, 2), a_job(1, 1)),
    ],
)
def test_superseded_launch_is_deleted_at_once(jobs: tuple[Job, ...]) -> None:
    """The newest launch is known from the Jobs, or from the row alone."""
    found = judged(a_running_task(2), *jobs)
    assert reason_of(found) is HoldReason.FINISHING
    assert removed(found) == [("jobs", "job-1-1")]


# waiting | none, N = 0 | create (att, 1)


def test_new_row_is_launched_without_a_question() -> None:
    assert judged(a_task()) == JobsVerdict(Launch(1, 0, 0, Ask.NOTHING))


def test_first_launch_of_a_later_attempt_asks_for_all_jobs() -> None:
    assert judged(a_task(attempt=2)) == JobsVerdict(Launch(1, 0, 0, Ask.ALL_JOBS))


# any | J FailureTarget, its Pod on a lost node | wait; after NODE_LOST_SECONDS force the Pod

FAILING = a_job(phase=Phase.FAILING, reason="PodFailurePolicy")
LOST_POD = a_pod(FAILING, phase="Running", node_name="node-1", deleting=True, had_run=True)
LOST_NODE = a_node(ready=False, unreachable=True)


def judged_on_lost_node(patience: int, seen: dict[str, datetime], seconds: float) -> JobsVerdict:
    rules = Rules(node_lost_seconds=patience)
    cluster: dict[str, Any] = {"rules": rules, "seen": seen, "at": later(seconds)}
    return judged(a_running_task(), FAILING, pods=[LOST_POD], nodes=[LOST_NODE], **cluster)


@pytest.mark.fault(38)
def test_lost_node_is_waited_for_without_end_by_default() -> None:
    seen = dict[str, datetime]()
    for seconds in (0, 90_000):
        found = judged_on_lost_node(0, seen, seconds)
        assert reason_of(found) is HoldReason.NODE_LOST
        assert removed(found) == []


@pytest.mark.fault(38)
def test_pod_on_a_lost_node_is_forced_and_a_job_past_its_deadline_stays() -> None:
    seen = dict[str, datetime]()
    assert [removed(judged_on_lost_node(300, seen, seconds)) for seconds in (0, 299)] == [[], []]
    assert judged_on_lost_node(300, seen, 300).ends == (
        ObjectWrite("pods", LOST_POD.name, LOST_POD.uid, "its node is lost", grace_seconds=0),
    )


@pytest.mark.fault(38)
@pytest.mark.parametrize(
    ("task", "job", "gone"),
    [
        (a_running_task(), a_job(), ["pods", "jobs"]),
        (a_running_task(), a_job(deleting=True), ["pods"]),
        (a_task(), a_job(), ["pods", "deadline"]),
        (a_task(), FAILING, ["pods"]),
    ],
    ids=["its finalizer keeps the Pod", "on its way", "nothing else remembers it", "past its deadline"],
)
def test_job_on_a_lost_node_stays_unless_its_row_remembers_the_launch(task: Task, job: Job, gone: list[str]) -> None:
    seen = dict[str, datetime]()
    for seconds in (0, 300):
        cluster: dict[str, Any] = {"rules": Rules(node_lost_seconds=300), "seen": seen, "at": later(seconds)}
        found = judged(task, job, pods=[LOST_POD], nodes=[LOST_NODE], **cluster)
        assert reason_of(found) is HoldReason.NODE_LOST
    assert [end.kind for end in found.ends] == gone


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        (a_running_task(cancel_requested_at=ago(600)), HoldReason.NODE_LOST),
        (a_task(attempt=2), HoldReason.NODE_LOST),
        (a_running_task(2), HoldReason.NODE_LOST),
        (a_task(status=Status.CANCELLED, finished_at=ago(600)), None),
    ],
    ids=["cancelled", "an older attempt", "superseded", "terminal"],
)
def test_job_on_a_lost_node_is_freed_whatever_its_row_wants(task: Task, reason: HoldReason | None) -> None:
    """These lines stand before `node_lost`, and only ask its kubelet to end the container."""
    seen, job = dict[str, datetime](), a_job(deleting=True)
    for seconds in (0, 300):
        cluster: dict[str, Any] = {"rules": Rules(node_lost_seconds=300), "seen": seen, "at": later(seconds)}
        found = judged(task, job, pods=[LOST_POD], nodes=[LOST_NODE], **cluster)
        assert (found.verdict and reason_of(found)) is reason
    assert [(end.kind, end.uid, end.grace_seconds) for end in found.ends] == [("pods", LOST_POD.uid, 0)]


@pytest.mark.parametrize(
    ("job", "pod", "nodes"),
    [
        (FAILING, LOST_POD, [a_node()]),
        (FAILING, LOST_POD, []),
        (FAILING, a_pod(FAILING, phase="Running", node_name="node-1"), [LOST_NODE]),
    ],
    ids=["the node is fine", "the node is gone or not watched", "the Pod stays"],
)
def test_launch_on_a_reachable_node_is_just_launched(job: Job, pod: Pod, nodes: list[Any]) -> None:
    assert reason_of(judged(a_running_task(), job, pods=[pod], nodes=nodes)) is HoldReason.LAUNCHED


# any | J unfinished or being deleted | wait


@pytest.mark.parametrize("task", [a_task(), a_running_task(), a_running_task(max_failures=1)])
@pytest.mark.parametrize(
    "job",
    [a_job(), a_job(phase=Phase.FAILING), a_job(deleting=True), a_failed_job(deleting=True),
     a_complete_job(deleting=True), a_failed_job(deleting=True, report="exit-code")],
)  # fmt: skip
def test_job_that_is_there_is_waited_for(task: Task, job: Job) -> None:
    found = judged(task, job, pods=[a_pod(job, phase="Running", had_run=True)])
    assert reason_of(found) is HoldReason.LAUNCHED
    assert removed(found) == []


def test_job_whose_labels_somebody_changed_says_so() -> None:
    found = judged(a_task(), a_job(lacks="app.kubernetes.io/managed-by"), pods=[])
    assert isinstance(found.verdict, Hold)
    assert found.verdict.detail.endswith(
        "; somebody changed labels or annotations of its Job: app.kubernetes.io/managed-by"
    )


def test_suspended_job_tells_why_in_the_words_of_who_suspends_it() -> None:
    job, other = a_job(suspended=True, suspended_by="Kueue"), a_job(uid="another", suspended=True)
    said = {job.uid: "1 cpu too few"}
    for one, detail in ((job, 'Suspended: by Kueue: "1 cpu too few"'), (other, "Suspended"), (a_job(), "Starting")):
        found = judged(a_task(), one, pods=[], suspensions=said).verdict
        assert isinstance(found, Hold)
        assert found.detail.startswith(detail)
        assert ("too few" in found.detail) == (one is job)


# A run that nobody ends


@pytest.mark.parametrize(
    ("pod", "nodes", "told"),
    [
        ({}, [LOST_NODE], "Running; node node-1 is not ready"),
        ({"deleting": True}, [a_node()], "Running; its Pod is being deleted, and its node has not ended it yet"),
        ({}, [a_node()], "Running"),
        ({"phase": "Failed"}, [LOST_NODE], "Ending: its Pod has ended, and its Job has not"),
    ],
    ids=["the Pod tolerates the taint for ever", "its process cannot be killed", "it runs", "it has ended"],
)
def test_run_that_cannot_end_says_why(pod: dict[str, Any], nodes: list[Node], told: str) -> None:
    running = a_pod(a_job(), **{"phase": "Running", "had_run": True, "node_name": "node-1", **pod})
    assert detail_of(judged(a_running_task(), a_job(), pods=[running], nodes=nodes)) == told
