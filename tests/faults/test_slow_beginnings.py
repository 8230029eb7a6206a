"""Images that are pulled slowly, and init containers that work long: each limit counts what its page says."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from tests.controlplane.api import Json
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import STEER, Dispatcher, Place, QuickDispatcher
from tests.rig.janitoring import QuickJanitor, becomes
from tests.rig.reasons import explained
from tests.rig.steps import core_path, insert, succeeded, template_with

INIT = {"initContainers": [{"name": "fetch", "image": "registry.example/team/fetch:1"}]}
LATE = "Pod was active on the node longer than the specified deadline"
UNKNOWN = {
    "reason": "ContainerStatusUnknown", "exitCode": 137,
    "message": "The container could not be located when the pod was terminated",
}  # fmt: skip
LIMIT_SECONDS = 60


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def stopped(exit_code: int, began: float, ended: float) -> Json:
    """The state of a container that kubelet has stopped. Times: seconds ago."""
    return {"exitCode": exit_code, "reason": "Error", "startedAt": ago(began), "finishedAt": ago(ended)}


def statuses(states: Mapping[str, Json]) -> list[Json]:
    """Statuses of containers by their names."""
    common: Json = {"image": "a", "imageID": "", "ready": False, "restartCount": 0}
    return [{"name": name, "state": state, **common} for name, state in states.items()]


def slow_template(place: Place, pod: Mapping[str, Any]) -> str:
    """A template whose Pods get a node and wait there, until a test writes what becomes of them."""
    path = template_with(place, "slow", pod)
    manifest = yaml.safe_load(path.read_text())
    manifest["spec"]["template"]["metadata"]["annotations"] = {f"{STEER}/never-starts": "true"}
    path.write_text(yaml.safe_dump(manifest))
    return "slow"


async def taken_pods(place: Place, dispatcher: Dispatcher, count: int) -> list[Json]:
    """The Pods, once a kubelet has taken so many."""

    async def are_there() -> list[Json]:
        found: list[Json] = (await place.control_plane.admin("GET", core_path(place, "pods")))["items"]
        taken = [pod for pod in found if pod["status"].get("startTime") and pod["status"]["phase"] == "Pending"]
        return taken if len(taken) >= count else []

    return await wait_for(are_there, f"{count} Pods on nodes", 30, check=dispatcher.check)


async def tell(place: Place, pod: Json, status: Json) -> None:
    path = core_path(place, "pods", f"{pod['metadata']['name']}/status")
    await place.control_plane.admin("PATCH", path, {"status": status})


async def over_the_limit(place: Place, pod: Json, how: str) -> None:
    """Writes what kubelet writes of a Pod that was 91 s on its node, with a limit of 60 s.

    A pull and the start after it are one step of kubelet, and the limit ends none of its steps. So an image that
    comes late still begins, and is stopped at once. While it is tried again, or an init container works, the limit
    comes in between.
    """
    begin: Mapping[str, Json] = {
        "pull that is tried again": {"containerStatuses": statuses({"task": {"terminated": UNKNOWN}})},
        "pull that ends late": {"containerStatuses": statuses({"task": {"terminated": stopped(143, 1, 0)}})},
        "init container": {
            "containerStatuses": statuses({"task": {"waiting": {"reason": "PodInitializing"}}}),
            "initContainerStatuses": statuses({"fetch": {"terminated": stopped(143, 90, 0)}}),
        },
    }
    placed = {"type": "PodScheduled", "status": "True", "lastTransitionTime": ago(91)}
    failed = {"phase": "Failed", "reason": "DeadlineExceeded", "message": LATE, "startTime": ago(91)}
    await tell(place, pod, {**failed, "conditions": [placed], **begin[how]})


@pytest.mark.slow
@pytest.mark.fault(41)
async def test_init_container_longer_than_the_start_deadline_is_waited_for_and_named(place: Place) -> None:
    """An init container that works is a start. Its row is not told that its image is wrong."""
    works = {
        "initContainerStatuses": statuses({"fetch": {"running": {"startedAt": ago(0)}}}),
        "containerStatuses": statuses({"task": {"waiting": {"reason": "PodInitializing"}}}),
    }
    settings = {"MAX_LAUNCHES": 1, "START_DEADLINE_SECONDS": 10}
    async with place.playing() as player, QuickDispatcher(place, **settings) as dispatcher:
        await dispatcher.ready()
        (task_id,) = await insert(place, 1, template=slow_template(place, INIT))
        (pod,) = await taken_pods(place, dispatcher, 1)
        began = time.monotonic()
        await tell(place, pod, works)
        found = await explained(dispatcher, task_id, "Starting")
        assert found["reason"] == "Launched"
        assert "correct the image" not in found["next_step"]
        await wait_for(lambda: time.monotonic() - began > 3, "a start deadline and a half", 20, check=dispatcher.check)
        (now,) = await taken_pods(place, dispatcher, 1)
        assert (now["metadata"]["uid"], now["metadata"].get("deletionTimestamp")) == (pod["metadata"]["uid"], None)
        found = await explained(dispatcher, task_id, "its init containers run", 10)
        assert found["reason"] == "Launched"
        path = core_path(place, "pods", pod["metadata"]["name"])
        go_on = {"metadata": {"annotations": {f"{STEER}/never-starts": None}}}
        await place.control_plane.admin("PATCH", path, go_on)
        await succeeded(place, dispatcher, 1)
        row = await place.database.task(task_id)
        assert (row["attempt"], row["launch"], row["failures"], len(player.runs)) == (1, 1, 0, 1)


@pytest.mark.slow
@pytest.mark.fault(41)
@pytest.mark.parametrize(
    ("how", "words"),
    [("pull that is tried again", "image"), ("pull that ends late", "image"), ("init container", "init container")],
)
async def test_run_limit_that_a_slow_beginning_used_up_is_named_as_such(place: Place, how: str, words: str) -> None:
    """The run limit counts from the start of the Pod. The image is not wrong, so nobody is told to correct it."""
    template = slow_template(place, INIT if how == "init container" else {})
    async with QuickDispatcher(place, MAX_LAUNCHES=1) as dispatcher:
        await dispatcher.ready()
        (task_id,) = await insert(place, 1, template=template, timeout_seconds=LIMIT_SECONDS)
        (pod,) = await taken_pods(place, dispatcher, 1)
        await over_the_limit(place, pod, how)
        found = await explained(dispatcher, task_id, "never started")
        assert found["launches"][-1]["reason"].endswith("over its limit of 1 min")
        assert words in found["launches"][-1]["reason"]
        assert (await place.database.task(task_id))["failures"] == 0
        assert "run limit" in found["message"]
        assert "correct the image" not in found["next_step"], (found["whose_turn"], found["next_step"])
        assert "timeout_seconds" in found["next_step"]
        async with QuickJanitor(place, MAX_LAUNCHES=1) as janitor:
            await becomes(place, task_id, "failed", janitor)
        error = str((await place.database.task(task_id))["error"])
        assert words in error
        assert "over its limit of 1 min" in error


@pytest.mark.slow
@pytest.mark.fault(41)
@pytest.mark.parametrize("how", ["pull that is tried again", "pull that ends late", "init container"])
async def test_slow_beginnings_over_the_run_limit_brake_no_image(place: Place, how: str) -> None:
    """Three launches that ended at their run limit say nothing about the image."""
    template = slow_template(place, INIT if how == "init container" else {})
    async with QuickDispatcher(place, MAX_LAUNCHES=1) as dispatcher:
        await dispatcher.ready()
        slow = await insert(place, 3, template=template, timeout_seconds=LIMIT_SECONDS)
        for pod in await taken_pods(place, dispatcher, 3):
            await over_the_limit(place, pod, how)
        for task_id in slow:
            await explained(dispatcher, task_id, "never started")
        for task_id in await insert(place, 2, template=template, timeout_seconds=7200):
            await explained(dispatcher, task_id, "Starting")


@pytest.mark.slow
@pytest.mark.fault(41)
async def test_pull_longer_than_the_start_deadline_is_named_as_such(place: Place) -> None:
    """No error was seen, so the image may be right. The deadline ended the launch, and its words say so."""
    template = slow_template(place, {})
    settings = {"MAX_LAUNCHES": 1, "START_DEADLINE_SECONDS": 10}
    async with Dispatcher(place, **settings) as dispatcher:
        await dispatcher.ready()
        (task_id,) = await insert(place, 1, template=template)
        found = await explained(dispatcher, task_id, "never started", 60)
        async with QuickJanitor(place, **settings) as janitor:
            await becomes(place, task_id, "failed", janitor)
        row = await place.database.task(task_id)
        told = (found["message"], found["next_step"], row["error"])
        assert "start deadline" in str(row["error"]), told
        assert "correct the image" not in found["next_step"], told
