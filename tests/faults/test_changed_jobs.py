"""Somebody else changes our Jobs and Pods: policies, webhooks, people with kubectl, queueing systems, backup tools."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from tests.controlplane.api import KubeFault
from tests.controlplane.waiting import wait_for
from tests.rig.admission import ADMISSION, CREATES_PODS, changing, failing_webhook, here, write_workload
from tests.rig.dispatching import Dispatcher, Place, QuickDispatcher
from tests.rig.janitoring import Janitor, QuickJanitor, becomes, both
from tests.rig.reasons import explained
from tests.rig.steps import (
    LET_GRACES_PASS,
    core_path,
    creates,
    has_jobs,
    held,
    insert,
    jobs_path,
    looks_again,
    no_jobs,
    reaches,
    succeeded,
)

TTL = "Object{spec: Object.spec{ttlSecondsAfterFinished: 2}}"
NO_NOTES = '[JSONPatch{op: "remove", path: "/metadata/annotations"}]'
TWO_RUNS = {"spec": {"backoffLimit": 3}}
A_POD: dict[str, Any] = {
    "metadata": {"name": "probe"},
    "spec": {"containers": [{"name": "x", "image": "registry.example/x:1"}]},
}
PROXY = 'Object.spec.containers{name: "proxy", image: "registry.example/proxy:1"}'
PROXY_FIRST = f'[JSONPatch{{op: "add", path: "/spec/containers/0", value: {PROXY}}}]'


def has_ttl(job: dict[str, Any]) -> bool:
    return bool(job["spec"].get("ttlSecondsAfterFinished") == 2)


async def patch(place: Place, path: str, change: dict[str, Any]) -> None:
    await place.control_plane.admin("PATCH", path, change)


async def only_job(place: Place, dispatcher: Dispatcher) -> str:
    (job,) = await has_jobs(place, dispatcher, 1)
    return str(job["metadata"]["name"])


async def pods(place: Place) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await place.control_plane.admin("GET", core_path(place, "pods")))["items"]
    return found


@pytest.mark.slow
async def test_time_to_live_by_a_policy_holds_the_rows_and_is_named(place: Place) -> None:
    """With it a finished Job is forgotten, and its row would run again and again."""
    async with place.playing(), Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        async with changing(place.control_plane, place.namespace, TTL, has_ttl):
            first, *_ = await insert(place, 1, env={"PLAY": "exit-0-without-start"})
            await has_jobs(place, dispatcher, 1)
            rest = await insert(place, 3)
            found = await explained(dispatcher, rest[0], "spec.ttlSecondsAfterFinished is 2, not absent")
            assert (found["reason"], found["whose_turn"]) == ("JobChanged", "operator")
            await no_jobs(place, dispatcher)
            await looks_again(dispatcher, 10)
            assert len(creates(place)) <= 2
        await succeeded(place, dispatcher, 3, 90)
        assert (await place.database.task(first))["status"] == "waiting"


@pytest.mark.slow
@pytest.mark.parametrize("label", ["app.kubernetes.io/managed-by", "dispatcher.internal/installation"])
async def test_job_whose_label_somebody_changed_counts_is_told_and_ends(place: Place, label: str) -> None:
    async with place.playing(), QuickDispatcher(place, MAX_JOBS=1) as dispatcher:
        (hanging,) = await insert(place, 1, env={"PLAY": "hang"})
        name = await only_job(place, dispatcher)
        await reaches(place, dispatcher, hanging, "processing")
        await patch(place, jobs_path(place, name), {"metadata": {"labels": {label: "other"}}})
        if label.endswith("installation"):  # the watch does not see it any more, so a GET has to find it
            await looks_again(dispatcher, 20)
        (waiting,) = await insert(place, 1)
        await explained(dispatcher, waiting, "1 of 1")
        assert len(creates(place, None)) <= 4
        admin = await place.database.session("admin")
        await admin.fetchval("SELECT dispatch.task_cancel($1)", hanging)
        await admin.execute(LET_GRACES_PASS)
        await succeeded(place, dispatcher, 1, 60)


@pytest.mark.slow
async def test_job_of_a_waiting_row_that_lost_our_label_makes_no_storm(place: Place) -> None:
    """The watch does not see the Job any more, and each create finds it."""
    async with Dispatcher(place) as dispatcher:
        (task_id,) = await insert(place, 1)
        name = await only_job(place, dispatcher)
        await patch(place, jobs_path(place, name), {"metadata": {"labels": {"dispatcher.internal/installation": None}}})
        found = await explained(dispatcher, task_id, "changed labels or annotations of its Job: dispatcher.inte")
        assert found["reason"] == "Launched"
        await looks_again(dispatcher, 20)
        assert len(creates(place, None)) <= 3
        async with place.playing():
            await reaches(place, dispatcher, task_id, "succeeded")


@pytest.mark.slow
async def test_row_whose_job_lost_our_label_ends_by_its_exit_code(place: Place) -> None:
    """The janitor's list of Jobs does not show the Job, and its Pod does."""
    place.template("code", steer={"run-seconds": "5"}, report="exit-code")
    async with both(place) as (janitor, dispatcher):
        (task_id,) = await insert(place, 1, template="code")
        name = await only_job(place, dispatcher)
        await patch(place, jobs_path(place, name), {"metadata": {"labels": {LABEL: "other"}}})
        await becomes(place, task_id, "succeeded", janitor)
    assert len(creates(place)) == 1


def has_no_notes(job: dict[str, Any]) -> bool:
    return not job["metadata"].get("annotations")


@pytest.mark.slow
async def test_policy_that_strips_annotations_holds_the_rows_and_is_named(place: Place) -> None:
    """Without them only the name tells whose Job it is."""
    async with place.playing(), Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        async with changing(place.control_plane, place.namespace, NO_NOTES, has_no_notes):
            await insert(place, 1)
            await has_jobs(place, dispatcher, 1)
            ids = await insert(place, 5)
            found = await explained(dispatcher, ids[-1], "annotations[dispatcher.internal/identity] is absent")
            assert (found["reason"], found["whose_turn"]) == ("JobChanged", "operator")
            await succeeded(place, dispatcher, 1)
            await looks_again(dispatcher, 20)
            assert len(creates(place, None)) <= 8


@pytest.mark.slow
async def test_job_whose_annotations_somebody_removed_counts_is_told_and_ends(place: Place) -> None:
    async with place.playing(), QuickDispatcher(place, MAX_JOBS=1) as dispatcher:
        (hanging,) = await insert(place, 1, env={"PLAY": "hang"})
        name = await only_job(place, dispatcher)
        await patch(place, jobs_path(place, name), {"metadata": {"annotations": None}})
        await reaches(place, dispatcher, hanging, "processing")
        (waiting,) = await insert(place, 1)
        await explained(dispatcher, waiting, "1 of 1")
        admin = await place.database.session("admin")
        await admin.fetchval("SELECT dispatch.task_cancel($1)", hanging)
        await admin.execute(LET_GRACES_PASS)
        await succeeded(place, dispatcher, 1, 60)
        assert len(creates(place, None)) <= 4


@pytest.mark.slow
async def test_run_that_failed_is_not_hidden_by_a_second_pod_of_its_job(place: Place) -> None:
    """Somebody raises backoffLimit: the second Pod is refused and ends with 0, so the Job is Complete."""
    async with place.playing(), QuickDispatcher(place) as dispatcher:
        (task_id,) = await insert(place, 1, env={"PLAY": "start-then-exit-1"}, max_failures=2)
        name = await only_job(place, dispatcher)
        await patch(place, jobs_path(place, name), TWO_RUNS)
        found = await explained(dispatcher, task_id, "2 failed runs of 2", 120)
        assert (found["reason"], found["whose_turn"]) == ("FailuresExhausted", "submitter")
        assert [one["launch"] for one in await place.database.launches(task_id)] == [1, 2]


@pytest.mark.slow
async def test_row_whose_job_was_suspended_and_resumed_runs_again(place: Place) -> None:
    """Its second Pod is not the one that started: the row refuses it, and it ends with 0."""
    async with place.playing(), QuickDispatcher(place) as dispatcher:
        (task_id,) = await insert(place, 1, env={"PLAY": "hang"}, max_failures=2)
        name = await only_job(place, dispatcher)
        await reaches(place, dispatcher, task_id, "processing")
        await patch(place, jobs_path(place, name), {"spec": {"suspend": True}})
        admin = await place.database.session("admin")
        await admin.execute("UPDATE dispatch_private.tasks SET heartbeat_at = now() - interval '61 s', env = '{}'")
        found = await explained(dispatcher, task_id, "Suspended: by ")
        assert "by the Job's managed fields" in found["message"]
        assert found["whose_turn"] == "operator"
        await patch(place, jobs_path(place, name), {"spec": {"suspend": False}})
        await reaches(place, dispatcher, task_id, "succeeded", 120)
        assert [one["outcome"] for one in await place.database.launches(task_id)] == ["lost", "succeeded"]


@pytest.mark.slow
async def test_row_tells_why_its_job_is_suspended(place: Place) -> None:
    """Kueue speaks by its Workload, others by Events about the Job."""
    async with Dispatcher(place) as dispatcher:
        (task_id,) = await insert(place, 1)
        (job,) = await has_jobs(place, dispatcher, 1)
        about = {"kind": "Job", "namespace": place.namespace} | {one: job["metadata"][one] for one in ("name", "uid")}
        event = {"metadata": {"name": "said"}, "involvedObject": about, "message": "Jobs run from 20:00 on"}
        await place.control_plane.admin("POST", core_path(place, "events"), {**event, "source": {"component": "night"}})
        await patch(place, jobs_path(place, about["name"]), {"spec": {"suspend": True}})
        await explained(dispatcher, task_id, 'managed fields: "night: Jobs run from 20:00 on"')
        quota = "couldn't assign flavors to pod set main: insufficient unused quota for cpu, 1 more needed"
        await write_workload(place.control_plane, place.namespace, job, quota)
        found = await explained(dispatcher, task_id, f': "{quota}"')
        assert (found["reason"], found["whose_turn"]) == ("Launched", "operator")
        await patch(place, jobs_path(place, about["name"]), {"spec": {"suspend": False}})
        async with place.playing():
            await reaches(place, dispatcher, task_id, "succeeded")


@pytest.mark.slow
async def test_webhook_of_pods_that_is_away_costs_no_row_a_launch(place: Place) -> None:
    place.template("hooked")
    async with place.playing(), QuickDispatcher(place, MAX_LAUNCHES=1) as dispatcher:
        await dispatcher.ready()
        async with failing_webhook(place, "hooked", 1, CREATES_PODS):
            (task_id,) = await insert(place, 1, template="hooked")
            found = await explained(dispatcher, task_id, "failed calling webhook", 60)
            assert ("PodOutage" in found["message"], found["whose_turn"]) == (True, "operator")
            await looks_again(dispatcher, 20)
            assert len(creates(place)) == 1
        await reaches(place, dispatcher, task_id, "succeeded", 120)


@pytest.mark.slow
async def test_finalizer_on_a_pod_keeps_no_place(place: Place) -> None:
    async with place.playing(), QuickDispatcher(place, MAX_JOBS=1) as dispatcher:
        (task_id,) = await insert(place, 1, env={"PLAY": "hang"})
        await only_job(place, dispatcher)
        await reaches(place, dispatcher, task_id, "processing")
        (pod,) = await pods(place)
        path = core_path(place, "pods", pod["metadata"]["name"])
        await patch(place, path, {"metadata": {"finalizers": ["backup.example/keep"]}})
        admin = await place.database.session("admin")
        await admin.fetchval("SELECT dispatch.task_cancel($1)", task_id)
        await admin.execute(LET_GRACES_PASS)
        await insert(place, 1)
        try:
            await succeeded(place, dispatcher, 1, 60)
            assert [one["metadata"]["name"] for one in await pods(place) if one["metadata"].get("finalizers")]
        finally:
            await patch(place, path, {"metadata": {"finalizers": None}})
        await held(dispatcher, "JobCap", 0)


@asynccontextmanager
async def changing_pods(
    place: Place, expression: str, changed: Callable[[dict[str, Any]], bool]
) -> AsyncIterator[None]:
    """A policy that changes each new Pod of the namespace by a JSON patch. `changed`: whether it has changed a Pod."""
    plane, name = place.control_plane, place.namespace
    specs: dict[str, dict[str, Any]] = {
        "mutatingadmissionpolicies": {
            "matchConstraints": {**here(place), "resourceRules": [CREATES_PODS]}, "failurePolicy": "Fail",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
            "reinvocationPolicy": "Never",
        },
        "mutatingadmissionpolicybindings": {"policyName": name},
    }  # fmt: skip
    for plural, spec in specs.items():
        await plane.admin("POST", f"{ADMISSION}/{plural}", {"metadata": {"name": name}, "spec": spec})

    async def is_in_force() -> bool:
        try:
            return changed(await plane.admin("POST", core_path(place, "pods"), A_POD, params={"dryRun": "All"}))
        except KubeFault:  # the account of its Pods may not be there yet
            return False

    try:
        await wait_for(is_in_force, "the policy is in force", 30)
        yield
    finally:
        for plural in reversed(specs):
            await plane.admin("DELETE", f"{ADMISSION}/{plural}/{name}")


def through_the_house(place: Place, whose: str) -> AbstractAsyncContextManager[None]:
    """A policy that takes the images of Jobs, or of Pods, from the proxy of a house."""
    at = "/spec/template/spec" if whose == "jobs" else "/spec"
    image = f"object{at.replace('/', '.')}.containers[0].image"
    value = f'{image}.replace("registry.example/", "house.example/proxy/")'
    patch = f'[JSONPatch{{op: "replace", path: "{at}/containers/0/image", value: {value}}}]'
    if whose == "jobs":
        return changing(place.control_plane, place.namespace, patch, is_of_the_house)
    return changing_pods(place, patch, is_of_the_house)


def is_of_the_house(made: dict[str, Any]) -> bool:
    return "'image': 'house.example/proxy/" in str(made["spec"])


@pytest.mark.slow
@pytest.mark.fault(39)
@pytest.mark.parametrize("whose", ["jobs", "pods"])
async def test_image_through_a_house_registry_brakes_its_template_alone(place: Place, whose: str) -> None:
    """The brake counts by the image that we asked for, so it holds whatever a policy makes of that."""
    place.template("nowhere", steer={"waiting": "ImagePullBackOff"})
    async with place.playing(), QuickDispatcher(place) as dispatcher:
        await dispatcher.ready()
        async with through_the_house(place, whose):
            for task_id in await insert(place, 3, template="nowhere"):
                await explained(dispatcher, task_id, "ImagePull: ImagePullBackOff")
            (fourth,) = await insert(place, 1, template="nowhere")
            found = await explained(dispatcher, fourth, "never started")
            assert (found["reason"], found["whose_turn"]) == ("TemplateFailing", "author")
            await insert(place, 2)  # of the same image under another template
            await succeeded(place, dispatcher, 2)
            await looks_again(dispatcher, 10)
            assert len(creates(place)) == 5
            found = await explained(dispatcher, fourth, "never started")
            assert found["reason"] == "TemplateFailing"
            assert all(map(is_of_the_house, await pods(place)))
            made = [job["metadata"]["annotations"]["dispatcher.internal/image"] for job in await jobs(place)]
            assert set(made) == {"registry.example/team/app:1"}


async def jobs(place: Place) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = await place.jobs()
    return found


async def stuck_behind_a_proxy(place: Place, dispatcher: Dispatcher, waiting: dict[str, str]) -> None:
    """Writes that the only Pod's first container runs, a sidecar, and that the container `main` waits."""

    async def has_begun() -> list[dict[str, Any]]:
        return [pod for pod in await pods(place) if pod["status"].get("startTime")]

    (pod,) = await wait_for(has_begun, "a kubelet has a Pod", 30, check=dispatcher.check)
    assert [one["name"] for one in pod["spec"]["containers"]] == ["proxy", "main"]
    runs: dict[str, Any] = {"running": {"startedAt": pod["status"]["startTime"]}}
    states = {"proxy": runs, "main": {"waiting": waiting}}
    told = [{"name": name, "image": "a", "imageID": "", "ready": state is runs, "restartCount": 0, "state": state}
            for name, state in states.items()]  # fmt: skip
    path = core_path(place, "pods", f"{pod['metadata']['name']}/status")
    await patch(place, path, {"status": {"phase": "Pending", "containerStatuses": told}})


async def ends_unstarted(place: Place, janitor: Janitor, task_id: int, words: str) -> None:
    await becomes(place, task_id, "failed", janitor, 150)
    assert words in str((await place.database.task(task_id))["error"])

    async def is_closed() -> bool:
        return [one["outcome"] for one in await place.database.launches(task_id)] == ["unstarted"]

    await wait_for(is_closed, "the janitor has closed the launch", 60, check=janitor.check)


def mainly(place: Place) -> None:
    """A template whose container is not called `task`. Its Pods never start."""
    place.template("mainly", steer={"never-starts": "true"})
    path = place.templates / "mainly.yaml"
    path.write_text(path.read_text().replace("name: task", "name: main"))


def has_proxy(made: dict[str, Any]) -> bool:
    return bool(made["spec"]["containers"][0]["name"] == "proxy")


@pytest.mark.slow
@pytest.mark.fault(39)
async def test_image_error_behind_an_injected_sidecar_ends_the_launch_and_is_told(place: Place) -> None:
    """The first container of the Pod is somebody else's, and it runs."""
    mainly(place)
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image x: no such host"}
    settings = {"MAX_LAUNCHES": 1, "START_DEADLINE_SECONDS": 10}
    async with both(place, **settings) as (janitor, dispatcher), changing_pods(place, PROXY_FIRST, has_proxy):
        await dispatcher.ready()
        (task_id,) = await insert(place, 1, template="mainly")
        await stuck_behind_a_proxy(place, dispatcher, waiting)
        found = await explained(dispatcher, task_id, "ImagePullBackOff: Back-off pulling image x: no such host")
        assert (found["reason"], found["whose_turn"]) == ("Launched", "author")
        await ends_unstarted(place, janitor, task_id, "launch 1: ImagePullBackOff: Back-off pulling image x")


@pytest.mark.slow
@pytest.mark.fault(39)
async def test_start_deadline_ends_a_launch_whose_injected_sidecar_alone_runs(place: Place) -> None:
    """A sidecar that runs is no start of the task."""
    mainly(place)
    settings = {"MAX_LAUNCHES": 1, "START_DEADLINE_SECONDS": 10}
    async with both(place, **settings) as (janitor, dispatcher), changing_pods(place, PROXY_FIRST, has_proxy):
        await dispatcher.ready()
        (task_id,) = await insert(place, 1, template="mainly")
        await stuck_behind_a_proxy(place, dispatcher, {"reason": "ContainerCreating"})
        await ends_unstarted(place, janitor, task_id, "LaunchesExhausted")


LABEL = "dispatcher.internal/installation"
NO_LABEL = f'[JSONPatch{{op: "remove", path: "/metadata/labels/{LABEL.replace("/", "~1")}"}}]'


@pytest.mark.slow
@pytest.mark.fault(39)
async def test_work_whose_pods_lose_our_label_is_done_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their Jobs prove whose they are. Without them, each Complete Job looked as if its container was told to stop."""
    monkeypatch.setitem(A_POD["metadata"], "labels", {LABEL: "x", "of": "house"})
    place.template("code", steer={"run-seconds": "1"}, report="exit-code")
    async with both(place) as (janitor, dispatcher):
        await dispatcher.ready()
        async with changing_pods(place, NO_LABEL, lambda pod: LABEL not in pod["metadata"]["labels"]):
            (task_id,) = await insert(place, 1, template="code")
            await becomes(place, task_id, "succeeded", janitor)
    assert len(creates(place)) == 1


NO_LIMIT = '[JSONPatch{op: "remove", path: "/spec/activeDeadlineSeconds"}]'


@pytest.mark.slow
@pytest.mark.fault(45)
async def test_run_whose_pod_lost_its_run_limit_ends_after_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """No kubelet ends it: it would keep its row, its caps and its room."""
    monkeypatch.setitem(A_POD["spec"], "activeDeadlineSeconds", 60)
    place.template("code", steer={"run-seconds": "600"}, report="exit-code")
    async with QuickDispatcher(place) as dispatcher, QuickJanitor(place) as janitor:
        await dispatcher.ready()
        async with changing_pods(place, NO_LIMIT, lambda pod: "activeDeadlineSeconds" not in pod["spec"]):
            (task_id,) = await insert(place, 1, template="code", timeout_seconds=1, max_failures=1)
            await becomes(place, task_id, "failed", janitor)
    error = str((await place.database.task(task_id))["error"])
    assert "ran over its run limit, which its kubelet did not keep" in error
    assert len(creates(place)) == 1
