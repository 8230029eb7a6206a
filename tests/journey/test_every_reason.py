"""Every reason for which a row waits, on every surface. Then its next step is carried out, and the row goes on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place, QuickDispatcher, TellingDispatcher
from tests.rig.janitoring import take_name
from tests.rig.pools import CORE, POOL, a_pool
from tests.rig.reasons import CRASHES, HUGE, SILENT, all_surfaces, change
from tests.rig.steps import core_path, insert, jobs_path, limit, reaches, template_with

QUEUES = """
INSERT INTO dispatch.queues (name, max_jobs, max_jobs_per_submitter, paused_until) VALUES
    ('quiet', NULL, NULL, 'infinity'), ('narrow', 0, NULL, NULL), ('mine', NULL, 0, NULL)
"""
NO_CAPS = "UPDATE dispatch.queues SET max_jobs = NULL, max_jobs_per_submitter = NULL, paused_until = NULL"
TORN = {"container": {"volumeMounts": [{"name": "nothing", "mountPath": "/x"}]}}


async def retry(place: Place, task_id: int) -> None:
    team = await place.database.session("team_a")
    assert await team.fetchval("SELECT dispatch.task_retry($1)", task_id) == "waiting"


@pytest.mark.slow
async def test_rows_templates_pauses_and_caps(place: Place) -> None:
    admin = await place.database.session("admin")
    await admin.execute(QUEUES)
    (place.templates / "faulty.yaml").write_text("kind: Pod\n")
    rows = {
        "UnknownTemplate": (await insert(place, 1, template="later"))[0],
        "InvalidTemplate": (await insert(place, 1, template="faulty"))[0],
        "PolicyDenied": (await insert(place, 1, spec={"cpu": "20m"}))[0],
        "Paused": (await insert(place, 1, queue="quiet"))[0],
        "SubmitterCap": (await insert(place, 1, queue="mine"))[0],
        "QueueCap": (await insert(place, 1, queue="narrow"))[0],
        "JobCap": (await insert(place, 1))[0],
    }
    due = (await insert(place, 1, run_at=datetime.now(UTC) + timedelta(hours=1)))[0]
    *middle, behind = await insert(place, 300)
    async with all_surfaces(place, QuickDispatcher(place, MAX_JOBS=0)) as surfaces:
        await surfaces.tell(due, "NotDue")
        await surfaces.tell(behind, "JobCap")
        told = {reason: await surfaces.tell(task_id, reason) for reason, task_id in rows.items()}
        assert [cause["reason"] for cause in told["Paused"]["also"]] == ["JobCap"]
        place.template("later")
        place.template("faulty")
        place.template("default", row_may_set="cpu", max_cpu="1")
        await admin.execute(NO_CAPS)
        await admin.execute("DELETE FROM dispatch_private.tasks WHERE id = ANY($1::bigint[])", middle)
        for reason in ("UnknownTemplate", "InvalidTemplate", "PolicyDenied", "Paused", "SubmitterCap", "QueueCap"):
            await surfaces.tell(rows[reason], "JobCap", "0 of 0")
    async with place.playing(), Dispatcher(place, MAX_JOBS=400) as dispatcher:
        await dispatcher.ready()
        for task_id in (*rows.values(), behind):
            await reaches(place, dispatcher, task_id, "succeeded", 60)
        assert (await place.database.task(due))["status"] == "waiting"


@pytest.mark.slow
async def test_jobs_that_ended_or_were_refused(place: Place) -> None:
    template_with(place, "silent", SILENT)
    template_with(place, "crashing", CRASHES)
    template_with(place, "torn", TORN)
    place.template("broken", steer={"start-error": "no such file"})
    rows = {
        "ExitedWithoutReport": (await insert(place, 1, template="silent"))[0],
        "FailuresExhausted": (await insert(place, 1, template="crashing", max_failures=1))[0],
        "LaunchesExhausted": (await insert(place, 1, template="broken"))[0],
        "Poison": (await insert(place, 1, template="torn"))[0],
        "NameCollision": (await insert(place, 1))[0],
    }
    foreign = await take_name(place, rows["NameCollision"])
    dispatcher = QuickDispatcher(place, MAX_LAUNCHES=1)
    async with place.playing(), all_surfaces(place, dispatcher) as surfaces:
        for reason, task_id in rows.items():
            await surfaces.tell(task_id, reason)
        for name in ("silent", "crashing", "torn", "broken"):
            place.template(name)
        await place.control_plane.admin("DELETE", jobs_path(place, foreign), {"propagationPolicy": "Background"})
        for reason in ("ExitedWithoutReport", "FailuresExhausted", "LaunchesExhausted"):
            await retry(place, rows[reason])
        for task_id in rows.values():
            await reaches(place, dispatcher, task_id, "succeeded", 60)


@pytest.mark.slow
async def test_launches_that_fail_one_after_the_other(place: Place) -> None:
    place.template("flaky", steer={"start-error": "no such file"})
    place.template("stubborn", steer={"stop-seconds": "600"})
    dispatcher = QuickDispatcher(place, MAX_LAUNCHES=20, START_DEADLINE_SECONDS=15)
    async with place.playing(), all_surfaces(place, dispatcher) as surfaces:
        rows = await insert(place, 3, template="flaky")
        (stubborn,) = await insert(place, 1, template="stubborn", env={"PLAY": "hang"})
        await surfaces.tell(rows[0], "Backoff", "launch ")
        place.template("flaky", steer={"never-starts": "true"})  # each launch takes its whole deadline now
        rows += await insert(place, 1, template="flaky", priority=900)
        await surfaces.tell(rows[3], "TemplateFailing", "one at a time")
        await retry(place, stubborn)
        await surfaces.tell(stubborn, "Finishing")
        await end(place, stubborn)
        await reaches(place, dispatcher, stubborn, "processing", 60)
        place.template("flaky")
        for task_id in rows:
            await reaches(place, dispatcher, task_id, "succeeded", 60)


async def end(place: Place, task_id: int) -> None:
    """Removes the Job and the Pod of the row, and does not wait for its container."""
    plane, where = place.control_plane, {"labelSelector": f"dispatcher.internal/task-id={task_id}"}
    for path in (jobs_path(place), core_path(place, "pods")):
        for found in (await plane.admin("GET", path, params=where))["items"]:
            options = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
            await plane.admin("DELETE", f"{path}/{found['metadata']['name']}", options)


async def starts(place: Place, task_id: int, obstacle: str) -> None:
    """Takes away what keeps its Pod from starting, once it has a Pod."""
    note = {"metadata": {"annotations": {f"play.dispatcher.internal/{obstacle}": None}}}

    async def is_changed() -> bool:
        try:
            await change(place, task_id, "pods", note)
        except ValueError:  # no Pod yet
            return False
        return True

    await wait_for(is_changed, f"the Pod of {task_id} may start", 20)


@pytest.mark.slow
async def test_launches_that_wait(place: Place) -> None:
    place.template("slow", steer={"never-starts": "true"})
    place.template("nowhere", steer={"waiting": "ErrImagePull"})
    template_with(place, "refused", {"serviceAccountName": "nobody"})
    template_with(place, "huge", HUGE | {"nodeSelector": {POOL: place.namespace}})
    dispatcher = TellingDispatcher(place)
    async with place.playing(), all_surfaces(place, dispatcher) as surfaces:
        slow, suspended = await insert(place, 2, template="slow")
        (image,) = await insert(place, 1, template="nowhere")
        (refused,) = await insert(place, 1, template="refused")
        (huge,) = await insert(place, 1, template="huge")
        await surfaces.tell(slow, "Launched", "Starting")
        await change(place, suspended, "jobs", {"spec": {"suspend": True}})
        await surfaces.tell(image, "Launched", "ImagePull: ErrImagePull")
        await surfaces.tell(huge, "Launched", "Unschedulable: 0/")
        (never,) = await insert(place, 1, template="huge")
        await surfaces.tell(never, "NeverFits", "kube-scheduler says: 0/")
        await surfaces.tell(suspended, "Launched", "Suspended")
        await surfaces.tell(refused, "Launched", "PodRefused")
        # the next step of each
        await change(place, suspended, "jobs", {"spec": {"suspend": False}})
        accounts = core_path(place, "serviceaccounts")
        await place.control_plane.admin("POST", accounts, {"metadata": {"name": "nobody"}})
        for task_id, obstacle in ((slow, "never-starts"), (suspended, "never-starts"), (image, "waiting")):
            await starts(place, task_id, obstacle)
        async with a_pool(place, 1, cpu="600"):
            for task_id in (slow, suspended, image, refused, huge, never):
                await reaches(place, dispatcher, task_id, "succeeded", 60)


@pytest.mark.slow
async def test_lines_and_rates(place: Place) -> None:
    async with all_surfaces(place, QuickDispatcher(place, KUBE_WRITES_PER_SECOND=1)) as surfaces:
        rows = await insert(place, 250)
        await surfaces.tell(rows[100], "RateLimited", "KUBE_WRITES_PER_SECOND")
        await surfaces.tell(rows[-1], "InLine")
        admin = await place.database.session("admin")
        await admin.execute("DELETE FROM dispatch_private.tasks WHERE id = ANY($1::bigint[])", rows[:-1])
    async with place.playing(), Dispatcher(place) as dispatcher:
        await reaches(place, dispatcher, rows[-1], "succeeded", 60)


@pytest.mark.slow
async def test_quotas_and_full_nodes(place: Place) -> None:
    async with a_pool(place, 1) as pool:
        dispatcher = QuickDispatcher(place, NODE_SELECTOR=f"{POOL}={place.namespace}", MAX_PENDING=0)
        async with place.playing(), all_surfaces(place, dispatcher) as surfaces:
            rows = await insert(place, 6, **CORE)
            await surfaces.tell(rows[5], "NoRoomNow", "cpu 1")
            await limit(place, {"count/jobs.batch": "5"})
            await pool.add()
            await surfaces.tell(rows[5], "QuotaExceeded", "count/jobs.batch")
            more = {"spec": {"hard": {"count/jobs.batch": "9"}}}
            await place.control_plane.admin("PATCH", core_path(place, "resourcequotas", "limit"), more)
            await reaches(place, dispatcher, rows[5], "processing", 60)


@pytest.mark.slow
async def test_pods_of_the_same_kind_that_wait(place: Place) -> None:
    place.template("slow", steer={"never-starts": "true"})
    async with place.playing(), all_surfaces(place, QuickDispatcher(place, PENDING_MODE="any")) as surfaces:
        (slow,) = await insert(place, 1, template="slow")
        await surfaces.tell(slow, "Launched")
        (task_id,) = await insert(place, 1)
        await surfaces.tell(task_id, "PendingPods", "1 Pods are pending")
        await starts(place, slow, "never-starts")
        await reaches(place, surfaces.dispatcher, task_id, "succeeded", 60)
