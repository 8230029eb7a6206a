"""Pods and Jobs that end in unusual ways: lost nodes, deadlines, evictions, foreign Jobs."""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from secrets import token_hex
from typing import Any

import pytest

from tests.controlplane.api import Json
from tests.controlplane.player import Player
from tests.controlplane.programs import TaskCalls
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place, QuickDispatcher
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

FOREVER = 3600


@asynccontextmanager
async def unmanaged_node(place: Place) -> AsyncIterator[str]:
    """A Node without kubelet and kwok. The test writes its status."""
    name = f"fragile-{token_hex(3)}"
    await place.control_plane.admin("POST", "/api/v1/nodes", {"metadata": {"name": name}})
    await say(place, name, "True")
    yield name
    await place.control_plane.remove_node(name)


async def say(place: Place, node: str, ready: str) -> None:
    """Writes the condition Ready of the Node, as its kubelet or the node controller does."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "Ready", "status": ready, "lastHeartbeatTime": now, "lastTransitionTime": now}
    status = {"conditions": [condition], "capacity": {"cpu": "8", "memory": "8Gi", "pods": "20"}}
    await place.control_plane.admin("PATCH", f"/api/v1/nodes/{node}/status", {"status": status})


async def the_pod(place: Place, dispatcher: Dispatcher) -> Json:
    async def look() -> list[Json]:
        found: list[Json] = (await place.control_plane.admin("GET", core_path(place, "pods")))["items"]
        return found

    return (await wait_for(look, "a Pod", 20, check=dispatcher.check))[0]


async def run_on(place: Place, pod: Json) -> None:
    """Writes that the Pod's container runs, as the kubelet does."""
    ran = [{"name": "task", "image": "a", "imageID": "", "ready": True, "restartCount": 0, "state": {
        "running": {"startedAt": pod["metadata"]["creationTimestamp"]}}}]  # fmt: skip
    path = core_path(place, "pods", f"{pod['metadata']['name']}/status")
    await place.control_plane.admin("PATCH", path, {"status": {"phase": "Running", "containerStatuses": ran}})


async def lose(place: Place, dispatcher: Dispatcher, node: str) -> Json:
    """Runs a row on the node, then makes the node unreachable. The taint manager deletes its Pod after a second."""
    key = "node.kubernetes.io/unreachable"
    gone = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    template_with(place, "there", {"nodeName": node, "tolerations": [gone]})
    await dispatcher.ready()
    await insert(place, 1, template="there", env={"PLAY": "hang"})
    pod = await the_pod(place, dispatcher)
    await run_on(place, pod)
    await wait_for(lambda: place.rows("status = 'processing'"), "it has started", 20, check=dispatcher.check)
    await say(place, node, "Unknown")
    return pod


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
