"""TemplateFailing: the newest three launches of a queue, template and image never started."""

from typing import Any

import pytest

from dispatcher.jobs.picture import failing_groups, has_started
from dispatcher.model.cluster import Pod
from dispatcher.model.jobs import Job, LaunchGroup, Phase
from dispatcher.model.tasks import Task
from tests.rig.builders import (
    IMAGE,
    a_cluster,
    a_complete_job,
    a_disrupted_job,
    a_failed_job,
    a_job,
    a_pod,
    a_running_task,
    a_task,
    ago,
)

GROUP = LaunchGroup("default", "default", IMAGE)


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
    ],
    ids=["complete", "complete, no row", "runs", "had run", "image", "image, no row", "failed unstarted",
         "failed started", "no Pod yet", "pending", "failing", "disrupted", "failed, no row", "failed, past attempt",
         "taken back"],
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


def test_group_does_not_fail_with_one_start_among_the_newest_three() -> None:
    good = a_complete_job(1, 1, task_id=4, uid="good", created_at=ago(150))
    assert failing(broken(1, 3), broken(2, 2), good, broken(3, 1), tasks=ROWS) == frozenset()


def test_group_fails_despite_older_starts() -> None:
    good = a_complete_job(1, 1, task_id=4, uid="good", created_at=ago(600))
    assert failing(broken(1, 3), good, broken(2, 2), broken(3, 1), tasks=ROWS) == {GROUP}


def test_launches_without_a_known_result_do_not_count() -> None:
    silent = [a_disrupted_job(1, 1, task_id=5, uid="d", created_at=ago(30)), a_job(1, 1, task_id=6, uid="new")]
    assert failing(broken(1, 3), broken(2, 2), *silent, broken(3, 1), tasks=ROWS) == {GROUP}


def test_groups_of_other_images_queues_or_templates_are_counted_apart() -> None:
    elsewhere = [broken(3, 1, image="other"), broken(4, 1, queue="other"), broken(5, 1, template="other")]
    assert failing(broken(1, 3), broken(2, 2), *elsewhere, tasks=ROWS) == frozenset()


def test_several_groups_may_fail_at_once() -> None:
    other = [broken(number, number, image="other") for number in (4, 5, 6)]
    mine = [broken(number, number) for number in (1, 2, 3)]
    assert failing(*other, *mine, tasks=ROWS) == {GROUP, LaunchGroup("default", "default", "other")}


def test_launches_ended_by_the_start_deadline_do_not_count() -> None:
    """Only image and configuration make a group fail. The start deadline ended these launches; their Pods are gone."""
    late = [
        a_failed_job(1, 1, task_id=number, uid=f"late-{number}", created_at=ago(1800 + number), ended_at=ago(number))
        for number in (1, 2, 3)
    ]
    assert failing(*late, tasks=ROWS) == frozenset()


def test_launches_without_end_time_count_as_never_started() -> None:
    assert failing(*(broken(number, number, ended_at=None) for number in (1, 2, 3)), tasks=ROWS) == {GROUP}
