"""How a launch ended, in words and in the row's error, and launches of a queue, template and image that never start."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dispatcher.janitor.closing import Act, Closing, plan_closing
from dispatcher.jobs.observed import GONE, LaunchEnd, launch_end, span
from dispatcher.jobs.picture import failing_groups, has_started
from dispatcher.model.cluster import Pod, PodEnd
from dispatcher.model.jobs import EndedBy, Job, LaunchGroup, Phase
from dispatcher.model.tasks import Task
from tests.rig.builders import (
    IMAGE,
    NOW,
    a_cluster,
    a_complete_job,
    a_disrupted_job,
    a_failed_job,
    a_job,
    a_picture,
    a_pod,
    a_running_task,
    a_task,
    ago,
    an_exited_pod,
)

RAN = {"had_run": True, "had_begun": True}
PREPARED = {"had_begun": True, "had_prepared": True}


def reason_of(end: PodEnd, job: Job | None = None) -> str:
    job = job or a_failed_job()
    found = launch_end(job, [a_pod(job, phase="Failed", end=end)])
    assert found is not None
    return found.reason


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (PodEnd(container="task", exit_code=3, cause="Error"), "exit code 3"),
        (PodEnd(container="task", exit_code=137, cause="Error"), "exit code 137 (SIGKILL)"),
        (PodEnd(container="task", exit_code=143, cause="Error"), "exit code 143 (SIGTERM)"),
        (PodEnd(container="task", exit_code=255, cause="Error"), "exit code 255"),
        (PodEnd(container="sidecar", exit_code=3, cause="Error"), "container sidecar: exit code 3"),
        (PodEnd(container="task", exit_code=137, cause="OOMKilled", memory_limit="64Mi"), "OOMKilled (limit 64Mi)"),
        (PodEnd(container="task", exit_code=137, cause="OOMKilled"), "OOMKilled"),
        (PodEnd(container="task", exit_code=128, cause="StartError", output="no x"), "StartError: no x"),
        (PodEnd(reason="Evicted", message="The node was low on memory."), "Evicted: The node was low on memory."),
        (PodEnd(disruption="PreemptionByScheduler", container="task", exit_code=143), "PreemptionByScheduler"),
        (PodEnd(), "its Pod failed"),
    ],
)
def test_the_reason_names_what_ended_the_launch(end: PodEnd, reason: str) -> None:
    assert reason_of(end) == reason


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(3, "its limit of 3 s"), (90, "its limit of 90 s"), (600, "its limit of 10 min"), (7200, "its limit of 2 h"),
     (172_800, "its limit of 2 d"), (0, "its limit")],
)  # fmt: skip
def test_a_run_over_its_limit_names_the_limit(seconds: int, words: str) -> None:
    end = PodEnd(reason="DeadlineExceeded", message="Pod was active on the node longer", exit_code=143)
    job = a_failed_job(limit_seconds=seconds)
    for what, facts in (("ran", RAN), ("its init containers ran", PREPARED), ("its image was pulled", {})):
        found = launch_end(job, [a_pod(job, phase="Failed", end=end, **facts)])
        assert found is not None
        assert found.reason == f"{what} over {words}"


def test_run_limit_that_a_policy_gave_the_pod_is_told() -> None:
    """The row asked for an hour, and its container was told so."""
    job, end = a_failed_job(limit_seconds=3600), PodEnd(reason="DeadlineExceeded")
    found = launch_end(job, [a_pod(job, end=end, had_run=True, limit_seconds=15)])
    assert found is not None
    assert found.reason == "ran over its limit of 15 s, which somebody changed from 1 h"


def test_end_by_exit_code_is_that_of_the_tasks_container() -> None:
    """A sidecar that is killed later says nothing about the task."""
    job = a_failed_job(report="exit-code")
    pod = an_exited_pod(job, phase="Failed", end=PodEnd(container="proxy", exit_code=137))
    assert launch_end(job, [pod]) == LaunchEnd(
        reason="exit code 0", exit_code=0, pod_name=pod.name, node_name=pod.node_name, started_at=ago(300),
        ended_at=ago(60),
    )  # fmt: skip
    assert launch_end(a_failed_job(), [pod]) == LaunchEnd(
        reason="container proxy: exit code 137 (SIGKILL)", exit_code=137, pod_name=pod.name, node_name=pod.node_name
    )


def test_end_of_a_container_whose_pod_another_one_keeps_is_told() -> None:
    """The Pod goes with the end of its Job, so nobody may see it fail."""
    job = a_job()
    found = launch_end(job, [an_exited_pod(job, 3, phase="Running", end=None)])
    assert found is not None
    assert (found.reason, found.exit_code) == ("exit code 3", 3)
    assert launch_end(job, [an_exited_pod(job, 143, was_told=True, phase="Running", end=None)]) is None


def test_an_end_has_what_its_container_said_and_where_it_ran() -> None:
    job = a_failed_job()
    end = PodEnd(container="task", exit_code=1, cause="Error", output="no disk", started_at=NOW)
    found = launch_end(job, [a_pod(job, phase="Failed", had_run=True, node_name="n", end=end)])
    assert found == LaunchEnd(
        reason="exit code 1", exit_code=1, output="no disk", pod_name=f"pod-of-{job.uid}", node_name="n", started_at=NOW
    )


def test_words_of_the_node_about_a_container_that_never_began_are_no_output() -> None:
    job = a_failed_job()
    end = PodEnd(container="task", exit_code=128, cause="StartError", output="no such file", started_at=NOW)
    found = launch_end(job, [a_pod(job, phase="Failed", end=end)])
    assert found is not None
    assert (found.output, found.started_at) == ("", None)


def test_an_image_that_cannot_be_pulled_is_told_while_its_pod_waits() -> None:
    job = a_job()
    found = launch_end(job, [a_pod(job, waiting_reason="ErrImagePull", waiting_message="not found")])
    assert found is not None
    assert found.reason == "ErrImagePull: not found"


def test_a_disrupted_job_without_its_pod_is_told_as_such() -> None:
    found = launch_end(a_disrupted_job(), [])
    assert found == LaunchEnd(reason="Disrupted: its Pod was evicted, preempted or deleted")


@pytest.mark.parametrize(
    ("job", "phase"), [(a_job(), "Running"), (a_job(), "Pending"), (a_complete_job(), "Succeeded")]
)
def test_a_launch_that_runs_or_succeeded_has_no_cause(job: Job, phase: str) -> None:
    assert launch_end(job, [a_pod(job, phase=phase)]) is None


@pytest.mark.parametrize("job", [a_job(), a_failed_job(), a_job(ended_by="us")])
def test_launch_that_goes_on_or_of_which_nobody_knows_has_no_cause(job: Job) -> None:
    assert launch_end(job, []) is None


@pytest.mark.parametrize("who", EndedBy)
def test_launch_whose_pod_is_gone_tells_who_has_ended_it(who: EndedBy) -> None:
    """The Pod may end and go between two looks at it. The history has a line for the launch nevertheless."""
    assert launch_end(a_failed_job(ended_by=who.value), []) == LaunchEnd(reason=GONE[who])
    disrupted = EndedBy.ITSELF if who is EndedBy.ITSELF else EndedBy.OTHERS  # what ended first counts
    assert launch_end(a_disrupted_job(ended_by=who.value), []) == LaunchEnd(reason=GONE[disrupted])


def test_a_span_has_the_largest_whole_unit() -> None:
    assert [span(number) for number in (1, 60, 61, 3600, 86_400)] == ["1 s", "1 min", "61 s", "1 h", "1 d"]


@pytest.mark.parametrize(
    ("seconds", "words"), [(1, "ran for 1 s, after its image and its init containers, over"), (58, "ran over")]
)
def test_container_that_began_late_tells_how_long_it_ran(seconds: float, words: str) -> None:
    """Both times are by the clock of its node, which may be wrong."""
    end = PodEnd(reason="DeadlineExceeded", exit_code=143, started_at=ago(seconds - 300), ended_at=ago(-300))
    job = a_failed_job(limit_seconds=60)
    found = launch_end(job, [a_pod(job, phase="Failed", end=end, **RAN)])
    assert found is not None
    assert found.reason == f"{words} its limit of 1 min"


OOM = LaunchEnd(reason="OOMKilled (limit 64Mi)", exit_code=137, output="the end")
PARKED = "FailuresExhausted: the task had started, and max_failures is 1"


def planned(task: Task, *jobs: Job, ends: Mapping[str, LaunchEnd]) -> Closing:
    pods = [an_exited_pod(job) for job in jobs if job.phase is Phase.COMPLETE]
    closing = plan_closing(a_picture(jobs, a_cluster(pods)), task, timedelta(hours=1), ends=ends)
    assert closing is not None
    return closing


def error_of(task: Task, *jobs: Job, ends: Mapping[str, LaunchEnd]) -> str:
    return planned(task, *jobs, ends=ends).error


def a_lost_run() -> Task:
    """A run that may not be repeated, and that is silent for a minute."""
    return a_running_task(heartbeat_at=ago(60), max_failures=1)


def test_error_names_what_ended_the_launch_and_the_end_of_its_output() -> None:
    job = a_failed_job()
    words = f"{PARKED}; launch 1: OOMKilled (limit 64Mi)"
    assert error_of(a_lost_run(), job, ends={job.uid: OOM}) == f"{words}\nthe end"
    silent = msgspec.structs.replace(OOM, output="")
    assert error_of(a_lost_run(), job, ends={job.uid: silent}) == words


def test_error_says_nothing_of_a_launch_that_nobody_has_seen_end() -> None:
    assert error_of(a_lost_run(), a_failed_job(), ends={"another": OOM}) == PARKED
    assert not error_of(a_lost_run(), ends={"job-1-1": OOM}).count("OOMKilled")


@pytest.mark.parametrize(
    ("codes", "of_task", "act"),
    [({3, 64}, True, Act.FAIL), ({1, 2}, True, Act.RETRY), (set(), True, Act.RETRY), ({3, 137}, False, Act.RETRY)],
    ids=["final", "another", "none", "only the end of a sidecar is known"],
)
def test_status_that_the_template_calls_final_ends_the_row(codes: set[int], of_task: bool, act: Act) -> None:
    job = a_failed_job(report="exit-code", final_codes=frozenset(codes))
    pod = an_exited_pod(job, 3) if of_task else a_pod(job, phase="Failed", had_run=True)
    closing = plan_closing(a_picture([job], a_cluster([pod])), a_task(), timedelta(hours=1), ends={job.uid: OOM})
    assert closing is not None
    assert closing.act is act


def test_success_is_no_final_code() -> None:
    job = a_complete_job(report="exit-code", final_codes=frozenset({137}))
    assert planned(a_task(), job, ends={job.uid: OOM}).act is Act.SUCCEED


def test_row_that_ends_well_has_no_error() -> None:
    job = a_complete_job(report="exit-code")
    assert error_of(a_task(), job, ends={job.uid: OOM}) == ""


GROUP = LaunchGroup("default", "default", IMAGE, "team_a")


def failing(*jobs: Job, pods: tuple[Pod, ...] = (), tasks: tuple[Task, ...] = (a_task(),)) -> frozenset[LaunchGroup]:
    return failing_groups({task.id: task for task in tasks}, jobs, a_cluster(pods))


def broken(launch: int, minutes_ago: float, **changes: Any) -> Job:
    """A launch that failed for its image 70 s after its creation. Each launch belongs to another row."""
    seconds = minutes_ago * 60
    times = {"created_at": ago(seconds), "ended_at": ago(seconds - 70)}
    return a_failed_job(1, 1, task_id=launch, uid=f"broken-{launch}", **(times | changes))


ROWS = tuple(a_task(id=number) for number in range(1, 9))


# The result of one launch


@pytest.mark.parametrize(
    ("job", "task", "pods", "started"),
    [
        (a_complete_job(), a_task(), [], True),
        (a_complete_job(), None, [], True),
        (a_job(), a_task(), [a_pod(phase="Running")], True),
        (a_failed_job(), a_task(), [a_pod(phase="Failed", had_run=True)], True),
        (a_job(), a_task(), [a_pod(waiting_reason="ImagePullBackOff")], False),
        (a_job(), None, [a_pod(waiting_reason="ErrImagePull")], False),
        (a_failed_job(), a_task(), [], False),
        (a_failed_job(), a_running_task(), [], True),
        (a_job(), a_task(), [], None),
        (a_job(), a_task(), [a_pod()], None),
        (a_job(phase=Phase.FAILING), a_task(), [], None),
        (a_disrupted_job(), a_task(), [], None),
        (a_failed_job(), None, [], None),
        (a_failed_job(), a_task(attempt=2), [], None),
        (a_failed_job(is_unplaced=True), a_task(), [], None),
        (a_failed_job(ended_by="others"), a_task(), [], None),
        (a_failed_job(ended_by="us"), a_task(), [], False),
        (a_failed_job(), a_task(), [a_pod(phase="Failed", end=PodEnd(reason="DeadlineExceeded"))], None),
        (a_failed_job(), a_task(), [a_pod(phase="Failed", end=PodEnd(reason="OutOfcpu"))], None),
    ],
    ids=["complete", "complete, no row", "runs", "had run", "image", "image, no row", "failed unstarted",
         "failed started", "no Pod yet", "pending", "failing", "disrupted", "failed, no row", "failed, past attempt",
         "taken back", "deleted by others", "ended by us", "run limit", "rejected by a kubelet"],
)  # fmt: skip
def test_has_started_is_true_false_or_not_known(
    job: Job, task: Task | None, pods: list[Pod], started: bool | None
) -> None:
    assert has_started(task, job, a_cluster(pods)) is started


# Groups of launches


def test_group_fails_after_three_launches_that_never_started() -> None:
    three = [broken(1, 3), broken(2, 2), broken(3, 1)]
    assert failing(*three, tasks=ROWS) == {GROUP}
    assert failing(*three[:2], tasks=ROWS) == frozenset()


def test_group_fails_while_the_pods_of_three_launches_cannot_start() -> None:
    jobs = [a_job(1, 1, task_id=number, uid=f"stuck-{number}") for number in (1, 2, 3)]
    pods = tuple(a_pod(job, name=job.uid, waiting_reason="ImagePullBackOff") for job in jobs)
    assert failing(*jobs, pods=pods, tasks=ROWS) == {GROUP}
    assert failing(*jobs, pods=pods[:2], tasks=ROWS) == frozenset()


def test_group_does_not_fail_with_one_start_among_the_newest_three() -> None:
    good = a_complete_job(1, 1, task_id=4, uid="good", created_at=ago(150))
    assert failing(broken(1, 3), broken(2, 2), good, broken(3, 1), tasks=ROWS) == frozenset()


def test_group_fails_despite_older_starts() -> None:
    good = a_complete_job(1, 1, task_id=4, uid="good", created_at=ago(600))
    assert failing(broken(1, 3), good, broken(2, 2), broken(3, 1), tasks=ROWS) == {GROUP}


def test_launches_without_a_known_result_do_not_count() -> None:
    silent = [a_disrupted_job(1, 1, task_id=5, uid="d", created_at=ago(30)), a_job(1, 1, task_id=6, uid="new")]
    assert failing(broken(1, 3), broken(2, 2), *silent, broken(3, 1), tasks=ROWS) == {GROUP}


def test_groups_of_other_images_queues_templates_or_submitters_are_counted_apart() -> None:
    """The row of one team may be the cause. It must hold no row of another."""
    names = ("image", "queue", "template", "submitted_by")
    elsewhere = [broken(3 + at, 1, **{name: "other"}) for at, name in enumerate(names)]
    assert failing(broken(1, 3), broken(2, 2), *elsewhere, tasks=ROWS) == frozenset()


def test_several_groups_may_fail_at_once() -> None:
    other = [broken(number, number, image="other") for number in (4, 5, 6)]
    mine = [broken(number, number) for number in (1, 2, 3)]
    assert failing(*other, *mine, tasks=ROWS) == {GROUP, LaunchGroup("default", "default", "other", "team_a")}


class CountedPasses(list[Job]):
    """Jobs, with the number of passes over them."""

    passes = 0

    def __iter__(self) -> Iterator[Job]:
        self.passes += 1
        return super().__iter__()


def test_each_of_many_rows_may_have_a_broken_image_of_its_own() -> None:
    """A pass for each image would hold the cycles of all teams for seconds, with a thousand such rows."""
    jobs = CountedPasses(broken(number, number, image=f"image-{number % 20}") for number in range(60))
    found = failing_groups({number: a_task(id=number) for number in range(60)}, jobs, a_cluster())
    assert (len(found), jobs.passes) == (20, 2)


@pytest.mark.parametrize(("phase", "busy"), [("Pending", {GROUP}), ("Running", set())])
def test_run_of_before_lets_the_next_launch_show_whether_the_image_starts(phase: str, busy: set[LaunchGroup]) -> None:
    """It may go on for hours. Of launches that have not started, one shows enough."""
    under_way = a_job(1, 1, task_id=8, uid="under way", created_at=ago(900))
    jobs = [under_way, broken(1, 3), broken(2, 2), broken(3, 1)]
    picture = a_picture(jobs, a_cluster([a_pod(under_way, phase=phase)]))
    assert picture.launch_groups({task.id: task for task in ROWS}) == (frozenset({GROUP}), frozenset(busy))


def test_launches_ended_by_the_start_deadline_do_not_count() -> None:
    """Only image and configuration make a group fail. The start deadline ended these launches; their Pods are gone."""
    late = [
        a_failed_job(1, 1, task_id=number, uid=f"late-{number}", created_at=ago(1800 + number), ended_at=ago(number))
        for number in (1, 2, 3)
    ]
    assert failing(*late, tasks=ROWS) == frozenset()


def test_launches_without_end_time_count_as_never_started() -> None:
    assert failing(*(broken(number, number, ended_at=None) for number in (1, 2, 3)), tasks=ROWS) == {GROUP}
