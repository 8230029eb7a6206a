"""The dispatcher ends a Pod whose run limit no kubelet keeps: a policy has taken it, or the kubelet keeps none."""

from typing import Any

import pytest

from dispatcher.jobs.observed import GONE, TaskWithJobs, launch_end
from dispatcher.jobs.picture import has_started
from dispatcher.model.cluster import Node, Pod
from dispatcher.model.jobs import EndedBy, Job
from dispatcher.model.tasks import Task
from tests.rig.builders import (
    a_cluster,
    a_complete_job,
    a_failed_job,
    a_job,
    a_node,
    a_pod,
    a_running_task,
    a_task,
    ago,
    an_exited_pod,
)
from tests.unit.judging import judged, next_launch

RUNS: dict[str, Any] = {"phase": "Running", "had_run": True, "had_begun": True}
LIMITED = a_job(limit_seconds=100)


def ends_of(task: Task, job: Job, pod: Pod, *nodes: Node) -> list[tuple[str, str | None]]:
    return [(end.kind, end.resource_version) for end in judged(task, job, pods=[pod], nodes=nodes).ends]


@pytest.mark.parametrize("its_own", [0, 100, 5000], ids=["lost", "kept", "changed"])
@pytest.mark.parametrize("task", [a_task(), a_running_task()], ids=["waiting", "processing"])
@pytest.mark.parametrize("shown", [RUNS, {"had_begun": True, "had_prepared": True}], ids=["runs", "prepares"])
def test_pod_that_no_kubelet_ends_is_ended_after_its_run_limit(task: Task, shown: dict[str, Any], its_own: int) -> None:
    """A minute after a limit that it lost, ten after its own. First the Job is noted in the judged version."""
    note = EndedBy.LIMIT if "phase" in shown else EndedBy.US
    late = its_own + 600 if its_own else 160
    for seconds, ends in ((late - 1, []), (late, [(note, LIMITED.resource_version)])):
        pod = a_pod(LIMITED, scheduled_at=ago(seconds), limit_seconds=its_own, **shown)
        assert ends_of(task, LIMITED, pod) == ends
        assert ends_of(task, LIMITED, pod, a_node(pod.node_name, unreachable=True)) == []
    noted = a_job(limit_seconds=100, ended_by=note)
    assert ends_of(task, noted, a_pod(noted, scheduled_at=ago(late), limit_seconds=its_own, **shown)) == [
        ("pods", None)
    ]


def test_run_limit_is_noted_on_a_launch_that_started_when_it_was_to_be_ended_as_late() -> None:
    job = a_job(limit_seconds=100, ended_by="us")
    assert ends_of(a_running_task(), job, a_pod(job, scheduled_at=ago(160), **RUNS)) == [
        (EndedBy.LIMIT, job.resource_version)
    ]


@pytest.mark.parametrize(
    ("job", "pod"),
    [
        ({"limit_seconds": 0}, {}),
        ({}, {"phase": "Failed"}),
        ({}, {"node_name": "", "phase": "Pending", "had_run": False}),
        ({"ended_by": "limit"}, {"deleting": True}),
    ],
    ids=["its Job has none", "it has ended", "it has no node", "it goes"],
)
def test_no_other_pod_is_ended_at_its_limit(job: dict[str, Any], pod: dict[str, Any]) -> None:
    one = a_job(**{"limit_seconds": 100, **job})
    assert ends_of(a_running_task(), one, a_pod(one, **{**RUNS, **pod})) == []


@pytest.mark.parametrize("code", [0, 143])
def test_run_over_its_limit_is_a_failed_run_whatever_its_exit_code(code: int) -> None:
    """A container that is told to stop may end with 0. It counts with its Pod, and without."""
    made = a_failed_job if code else a_complete_job
    job = made(limit_seconds=100, ended_by="limit")
    for pods in ([an_exited_pod(job, code, was_told=True, deleting=True)], []):
        launch = next_launch(a_running_task(), job, pods=pods)
        assert (launch.unstarted, launch.disrupted) == (0, 0)
        by_code = made(limit_seconds=100, ended_by="limit", report="exit-code")
        assert TaskWithJobs(a_task(), [by_code], a_cluster(pods)).has_succeeded is False


def test_run_over_its_limit_says_nothing_of_its_image() -> None:
    assert has_started(a_task(), a_failed_job(ended_by="limit"), a_cluster()) is None


def test_end_at_the_limit_names_the_kubelet() -> None:
    job = a_failed_job(ended_by="limit")
    for pods in ([], [an_exited_pod(job, 143, was_told=True)]):
        end = launch_end(job, pods)
        assert end is not None
        assert end.reason == GONE[EndedBy.LIMIT]
