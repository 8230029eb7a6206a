"""Attacks on placement: false node names, and Jobs that the API server refuses. Rows of others are not affected."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from tests.controlplane.waiting import wait_for
from tests.rig.admission import policy
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.rows import Pod, insert_row
from tests.rig.steps import creates, insert, plain_job, shows

CACHE_KEY = "dispatcher.internal/cache-key"
NOT_EVIL = "object.spec.template.metadata.?annotations[?'dispatcher.internal/cache-key'].orValue('') != 'evil'"
ABSENT_NODES = ["no-such-node", "no.such.node.example", "a" * 253, "1"]
STORE_INVALID_NODE = "UPDATE dispatch_private.tasks SET node_name = 'No Such Node!' WHERE id = $1"


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


@pytest.mark.slow
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


@pytest.mark.slow
async def test_stored_invalid_node_name_parks_no_row(place: Place) -> None:
    admin = await place.database.session("admin")
    await admin.execute(STORE_INVALID_NODE, await report_run_on(place, "node-1", "maps"))
    async with Dispatcher(place) as dispatcher:
        task_id = await place.database.insert_task("team_b", cache_key="maps")
        assert preferred(await job_of(place, dispatcher, task_id)) == []
        assert await dispatcher.metric("dispatcher_parked_tasks") == 0


def invalid_for_one_key(place: Place) -> AbstractAsyncContextManager[None]:
    """The API server answers 422 to Jobs with the cache key `evil`, as it does to invalid Jobs."""
    evil = plain_job("probe")
    evil["spec"]["template"]["metadata"] = {"annotations": {CACHE_KEY: "evil"}}
    return policy(place, {"expression": NOT_EVIL, "message": "no such thing", "reason": "Invalid"}, evil)


@pytest.mark.slow
async def test_refused_rows_of_one_submitter_delay_no_other_rows(place: Place) -> None:
    async with invalid_for_one_key(place), Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        await insert(place, 4, cache_key="evil", priority=0)
        await shows(dispatcher, "dispatcher_parked_tasks", 4, 30, reason="Poison")
        before = len(creates(place, 422))
        assert before >= 3
        plain = [await place.database.insert_task(login) for login in ("team_b", "team_b", "team_b", "team_a")]
        for task_id in plain:
            await job_of(place, dispatcher, task_id)
        # A row with the same key of another submitter is tried until the API server refuses it, too.
        await place.database.insert_task("team_b", cache_key="evil")
        await shows(dispatcher, "dispatcher_parked_tasks", 5, 30, reason="Poison")
        assert len(creates(place, 422)) > before
