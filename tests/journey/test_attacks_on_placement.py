"""Attacks on placement: false node names, and Jobs that the API server refuses. Rows of others are not affected."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.controlplane.api import KubeFault
from tests.controlplane.waiting import wait_for
from tests.dispatching import Dispatcher, Place
from tests.rows import Pod, insert_row

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
CREATES_JOBS = {"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}
CACHE_KEY = "dispatcher.internal/cache-key"
NOT_EVIL = "object.spec.template.metadata.?annotations[?'dispatcher.internal/cache-key'].orValue('') != 'evil'"
ABSENT_NODES = ["no-such-node", "no.such.node.example", "a" * 253, "1"]
STORE_INVALID_NODE = "UPDATE dispatch.tasks SET node_name = 'No Such Node!' WHERE id = $1"


async def report_run_on(place: Place, node: str, key: str) -> int:
    """The id of a row of team_a. Its container reported this node and succeeded."""
    row = await insert_row(place.database, "team_a", cache_key=key)
    assert await row.finish(await row.started(pod=Pod(node=node)), "succeeded") == "succeeded"
    return row.id


async def job_of(place: Place, dispatcher: Dispatcher, task_id: int) -> dict[str, Any]:
    async def found() -> list[dict[str, Any]]:
        jobs: list[Any] = await place.jobs()
        return [job for job in jobs if job["metadata"]["labels"]["dispatcher.internal/task-id"] == str(task_id)]

    job: dict[str, Any]
    (job,) = await wait_for(found, f"task {task_id} has a Job", 20, check=dispatcher.check)
    return job


def preferred(job: dict[str, Any]) -> list[str]:
    """The nodes that its Pod prefers."""
    node: dict[str, Any] = job["spec"]["template"]["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = node.get("preferredDuringSchedulingIgnoredDuringExecution", [])
    return [field["values"][0] for term in terms for field in term["preference"]["matchFields"]]


async def test_jobs_prefer_only_nodes_that_exist(place: Place, nodes: list[str]) -> None:
    await report_run_on(place, nodes[0], "maps")
    for name in ABSENT_NODES[:2]:
        await report_run_on(place, name, "maps")
    for name in ABSENT_NODES:
        await report_run_on(place, name, "nowhere")
    async with Dispatcher(place) as dispatcher:
        warm, cold = [await place.database.insert_task("team_b", cache_key=key) for key in ("maps", "nowhere")]
        assert preferred(await job_of(place, dispatcher, warm)) == [nodes[0]]
        job = await job_of(place, dispatcher, cold)
        assert preferred(job) == []
        assert not any(name in json.dumps(job) for name in ABSENT_NODES[:3])


async def test_stored_invalid_node_name_parks_no_row(place: Place) -> None:
    admin = await place.database.session("admin")
    await admin.execute(STORE_INVALID_NODE, await report_run_on(place, "node-1", "maps"))
    async with Dispatcher(place) as dispatcher:
        task_id = await place.database.insert_task("team_b", cache_key="maps")
        assert preferred(await job_of(place, dispatcher, task_id)) == []
        assert await dispatcher.metric("dispatcher_parked_tasks") == 0


def probe(key: str) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "x", "image": "registry.example/x:1"}]}
    template = {"metadata": {"annotations": {CACHE_KEY: key}}, "spec": pod}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "probe"}, "spec": {"template": template}}


@asynccontextmanager
async def invalid_for_one_key(place: Place) -> AsyncIterator[None]:
    """The API server answers 422 to Jobs with the cache key `evil`, as it does to invalid Jobs."""
    plane, name = place.control_plane, place.namespace
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
    never = {"expression": NOT_EVIL, "message": "no such thing", "reason": "Invalid"}
    specs = {
        "validatingadmissionpolicies": {
            "matchConstraints": {**here, "resourceRules": [CREATES_JOBS]}, "validations": [never],
        },
        "validatingadmissionpolicybindings": {"policyName": name, "validationActions": ["Deny"]},
    }  # fmt: skip
    for plural, spec in specs.items():
        await plane.admin("POST", f"{ADMISSION}/{plural}", {"metadata": {"name": name}, "spec": spec})

    async def is_in_force() -> bool:
        try:
            path = f"/apis/batch/v1/namespaces/{name}/jobs"
            await plane.admin("POST", path, probe("evil"), params={"dryRun": "All"})
        except KubeFault as refused:
            return "422" in str(refused) or "no such thing" in str(refused)
        return False

    try:
        await wait_for(is_in_force, "the policy is in force", 30)
        yield
    finally:
        for plural in reversed(specs):
            await plane.admin("DELETE", f"{ADMISSION}/{plural}/{name}")


def refusals(place: Place) -> int:
    """Number of the dispatcher's creates that the API server answered with 422."""
    user = f"system:serviceaccount:{place.namespace}:dispatcher"
    told = place.control_plane.audit(user_prefix=user, verb="create", resource="jobs", namespace=place.namespace)
    return len([event for event in told if event.code == 422])


async def poisoned(place: Place, dispatcher: Dispatcher, count: int) -> None:
    async def are_parked() -> bool:
        return await dispatcher.metric("dispatcher_parked_tasks", reason="Poison") == count

    await wait_for(are_parked, f"{count} rows are refused", 30, check=dispatcher.check)


async def test_refused_rows_of_one_submitter_delay_no_other_rows(place: Place) -> None:
    async with invalid_for_one_key(place), Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        for _ in range(4):
            await place.database.insert_task("team_a", cache_key="evil", priority=0)
        await poisoned(place, dispatcher, 4)
        before = refusals(place)
        assert before >= 3
        plain = [await place.database.insert_task(login) for login in ("team_b", "team_b", "team_b", "team_a")]
        for task_id in plain:
            await job_of(place, dispatcher, task_id)
        # A row with the same key of another submitter is tried until the API server refuses it, too.
        await place.database.insert_task("team_b", cache_key="evil")
        await poisoned(place, dispatcher, 5)
        assert refusals(place) > before
