"""Pods and Jobs that end in unusual ways: lost nodes, deadlines, evictions, foreign Jobs."""

import time
from collections.abc import Mapping
from typing import Any

import pytest

from tests.controlplane.player import Player
from tests.controlplane.programs import TaskCalls
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Place, QuickDispatcher
from tests.rig.steps import (
    core_path,
    creates,
    has_jobs,
    held,
    insert,
    jobs_path,
    looks_again,
    no_jobs,
    succeeded,
    template_with,
    waits_for,
)
from tests.rig.unmanaged import lose, say, unmanaged_node


@pytest.mark.slow
@pytest.mark.fault(38)
async def test_pod_on_a_lost_node_gets_no_second_pod_until_the_node_is_back(place: Place) -> None:
    async with unmanaged_node(place) as node, place.playing() as player, QuickDispatcher(place) as dispatcher:
        pod = await lose(place, dispatcher, node)
        path = core_path(place, "pods", pod["metadata"]["name"])

        async def is_to_go() -> bool:
            return "deletionTimestamp" in (await place.control_plane.admin("GET", path))["metadata"]

        await wait_for(is_to_go, "the cluster wants its Pod gone", 60, check=dispatcher.check)
        await waits_for(dispatcher, pod["metadata"]["labels"]["dispatcher.internal/task-id"], "NodeLost")
        await looks_again(dispatcher, 10)
        assert len(creates(place)) == len(player.runs) == 1
        await say(place, node, "True")  # the node is back, and its kubelet ends the container
        await place.control_plane.admin("PATCH", f"{path}/status", {"status": {"phase": "Failed"}})
        await place.control_plane.admin("DELETE", path, {"gracePeriodSeconds": 0})
        await has_jobs(place, dispatcher, 2, 40)


@pytest.mark.slow
@pytest.mark.fault(38)
async def test_node_lost_seconds_replaces_the_launch_on_a_lost_node(place: Place) -> None:
    dispatcher = QuickDispatcher(place, NODE_LOST_SECONDS=3)
    async with unmanaged_node(place) as node, place.playing(), dispatcher:
        pod = await lose(place, dispatcher, node)
        await waits_for(dispatcher, pod["metadata"]["labels"]["dispatcher.internal/task-id"], "NodeLost")
        await wait_for(lambda: len(creates(place)) == 2, "the next launch", 60, check=dispatcher.check)
        forced = place.control_plane.audit(verb="delete", resource="pods", namespace=place.namespace)
        ours = [one.object_ref.name for one in forced if one.user.endswith(":dispatcher")]
        assert pod["metadata"]["name"] in ours
        (follower,) = await place.jobs()
        labels, notes = follower["metadata"]["labels"], follower["metadata"]["annotations"]  # type: ignore[index]  # JSON
        assert (labels["dispatcher.internal/launch"], notes["dispatcher.internal/disrupted"]) == ("2", "1")


async def reports_and_fails(env: Mapping[str, str], calls: TaskCalls) -> int:
    assert await calls.start(env) is not None
    await calls.finish("succeeded")
    return 1


@pytest.mark.slow
@pytest.mark.fault(44)
async def test_report_counts_although_its_job_fails_afterwards(place: Place) -> None:
    player = Player(place.control_plane, place.namespace, place.database.url("task"), reports_and_fails)
    async with player, QuickDispatcher(place, TOMBSTONE_SECONDS=0) as dispatcher:
        (task_id,) = await insert(place, 1)
        await succeeded(place, dispatcher, 1)
        await no_jobs(place, dispatcher)
        await looks_again(dispatcher)
    assert len(player.runs_of(task_id)) == len(creates(place)) == 1


@pytest.mark.slow
@pytest.mark.fault(37, 50)
async def test_failed_job_without_pods_is_judged_by_its_own_conditions(place: Place) -> None:
    place.template("evicted", steer={"evicted-after-seconds": "1"})
    first = QuickDispatcher(place)
    await first.start()
    await insert(place, 1, template="evicted")
    (job,) = await has_jobs(place, first, 1)
    await first.kill()
    await place.end_term()

    async def has_failed() -> bool:
        (now,) = await place.jobs()
        return "PodFailurePolicy" in str(now["status"]) and "'Failed'" in str(now["status"])

    await wait_for(has_failed, "its Job failed", 20)
    await place.control_plane.admin("DELETE", core_path(place, "pods"))
    async with QuickDispatcher(place) as second:
        await has_jobs(place, second, 2)
    (follower,) = [one for one in await place.jobs() if one["metadata"]["name"] != job["metadata"]["name"]]  # type: ignore[index]  # JSON
    assert follower["metadata"]["annotations"]["dispatcher.internal/disrupted"] == "1"  # type: ignore[index]  # JSON


@pytest.mark.slow
@pytest.mark.fault(51)
async def test_a_foreign_job_with_our_labels_is_neither_counted_nor_removed(place: Place) -> None:
    labels = {
        "app.kubernetes.io/managed-by": "dispatcher", "dispatcher.internal/installation": "dispatcher",
        "dispatcher.internal/task-id": "1", "dispatcher.internal/attempt": "1", "dispatcher.internal/launch": "1",
    }  # fmt: skip
    body: dict[str, Any] = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}
    template = {"metadata": {"annotations": {"play.dispatcher.internal/run-seconds": "0"}}, "spec": body}
    for name, suspended in (("over", False), ("at-rest", True)):
        spec = {"template": template, "suspend": suspended}
        foreign = {"metadata": {"name": name, "labels": labels}, "spec": spec}
        await place.control_plane.admin("POST", jobs_path(place), foreign)
    async with place.playing(), QuickDispatcher(place, MAX_JOBS=1, TOMBSTONE_SECONDS=0) as dispatcher:
        await insert(place, 2)
        await succeeded(place, dispatcher, 2)

        async def only_theirs() -> bool:
            return {str(job["metadata"]["name"]) for job in await place.jobs()} == {"over", "at-rest"}  # type: ignore[index]  # JSON

        await wait_for(only_theirs, "our own Jobs are gone", 20, check=dispatcher.check)
        await looks_again(dispatcher, 10)
        assert await only_theirs()


@pytest.mark.slow
@pytest.mark.fault(41)
@pytest.mark.museum("count only running pods")
async def test_wait_for_a_node_counts_against_the_cap_and_costs_no_launch(place: Place) -> None:
    """Longer than a start deadline, and through the death of the dispatcher."""
    label = {"there": place.namespace}
    template_with(place, "nowhere", {"nodeSelector": label})
    settings = {
        "MAX_JOBS": 2,
        "MAX_PENDING": 100,
        "START_DEADLINE_SECONDS": 10,
        "MAX_LAUNCHES": 1,
        "CHECK_ROOM": "false",
    }
    dispatcher = QuickDispatcher(place, **settings)
    async with place.playing(), dispatcher:
        ids = await insert(place, 3, template="nowhere")
        await has_jobs(place, dispatcher, 2)
        await held(dispatcher, "JobCap", 1)
        await dispatcher.kill()
        await dispatcher.start()
        await held(dispatcher, "JobCap", 1)
        began = time.monotonic()
        await wait_for(
            lambda: time.monotonic() - began > 3, "a start deadline and a half", check=dispatcher.check, seconds=20
        )
        assert len(creates(place)) == 2
        (node,) = await place.control_plane.add_nodes(1, labels=label)
        await succeeded(place, dispatcher, 3, 30)
        rows = [await place.database.task(task_id) for task_id in ids]
        assert [(row["attempt"], row["launch"], row["failures"]) for row in rows] == [(1, 1, 0)] * 3
        await place.control_plane.remove_node(node)
