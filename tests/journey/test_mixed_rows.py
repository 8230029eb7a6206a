"""A hundred rows of mixed kinds run to their end. Their Jobs are compared with what the rows ask for."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.controlplane.player import Player
from tests.controlplane.programs import TaskCalls, play_task
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.steps import no_jobs, succeeded

GREETING = 'hello $(HOME) $$ $(TASK_START_KEY) ü "quoted"\nsecond line'
OPENED = "env,args,command,cpu,memory,image"
QUEUES = ("default", "reports", "night")


async def flaky(env: Mapping[str, str], calls: TaskCalls) -> int:
    """Plays the row as it says, but succeeds from attempt 2 on."""
    again = {**env, "PLAY": "succeed"} if int(env["TASK_ATTEMPT"]) > 1 else env
    return await play_task(again, calls)


def plan_rows() -> list[dict[str, Any]]:
    """Columns of a hundred rows, with every opened field and many combinations."""
    rows: list[dict[str, Any]] = []
    for number in range(100):
        row: dict[str, Any] = {"queue": QUEUES[number % 3], "priority": number % 7, "env": {"NUMBER": str(number)}}
        if number % 2:
            row |= {"template": "open", "spec": {"cpu": f"{10 + number}m", "memory": "32Mi", "args": ["--row", "$(X)"]}}
        if number % 5 == 0:
            row["env"]["GREETING"] = GREETING
        if number % 4 == 0:
            row |= {"payload": {"number": number}, "timeout_seconds": 600 + number}
        if number % 11 == 0:
            row["env"]["PLAY"] = "retry"
        if number % 9 == 0:
            row["cache_key"] = f"cache {number}"
        rows.append(row)
    return rows


async def declare_queues(place: Place) -> None:
    operator = await place.database.connect("operator")
    await operator.executemany("INSERT INTO dispatch.queues (name) VALUES ($1)", [(q,) for q in QUEUES[1:]])


@pytest.mark.slow
@pytest.mark.fault(45, 48, 55)
async def test_hundred_mixed_rows_become_the_jobs_they_ask_for(place: Place) -> None:
    await declare_queues(place)
    place.template("open", row_may_set=OPENED, max_cpu="1", max_memory="1Gi", images="registry.example/*")
    plane, planned = place.control_plane, plan_rows()
    player = Player(plane, place.namespace, place.database.url("task"), flaky)
    async with player, Dispatcher(place, TOMBSTONE_SECONDS=1) as dispatcher:
        ids = [await place.database.insert_task(**row) for row in planned]
        await succeeded(place, dispatcher, len(ids), 90)
        await no_jobs(place, dispatcher, 30)
    assert not player.faults
    created = await sent_jobs(place)
    for task_id, row in zip(ids, planned, strict=True):
        check_job(place, created[task_id][0], task_id, row)
        check_container(player, task_id, row)
    assert sum(len(jobs) for jobs in created.values()) == len(ids) + sum("PLAY" in row["env"] for row in planned)


async def sent_jobs(place: Place) -> dict[int, list[dict[str, Any]]]:
    """The Jobs as the API server received them, by task, in order."""
    jobs: dict[int, list[dict[str, Any]]] = {}
    for event in place.control_plane.audit(verb="create", resource="jobs", namespace=place.namespace):
        assert event.user == f"system:serviceaccount:{place.namespace}:dispatcher"
        assert event.code == 201
        assert event.request_object is not None
        job = event.request_object
        jobs.setdefault(int(job["metadata"]["labels"]["dispatcher.internal/task-id"]), []).append(job)
    return jobs


def check_job(place: Place, job: dict[str, Any], task_id: int, row: dict[str, Any]) -> None:
    """Checks names, labels, annotations, limits and resources of a first launch."""
    meta, spec = job["metadata"], job["spec"]
    pod = spec["template"]["spec"]
    assert meta["namespace"] == place.namespace
    assert meta["name"].startswith(f"dispatcher-{task_id}-")
    assert meta["name"].endswith("-1")
    labels = {
        "app.kubernetes.io/managed-by": "dispatcher",
        "dispatcher.internal/installation": "dispatcher",
        "dispatcher.internal/task-id": str(task_id),
        "dispatcher.internal/queue": row["queue"],
        "dispatcher.internal/attempt": "1",
        "dispatcher.internal/launch": "1",
        "dispatcher.internal/template": row.get("template", "default"),
    }
    assert meta["labels"] == labels
    assert spec["template"]["metadata"]["labels"].items() >= labels.items()
    notes = meta["annotations"]
    assert notes["dispatcher.internal/identity"].startswith(meta["name"].split("-")[2])
    assert notes["dispatcher.internal/submitted-by"].endswith("team_a")
    assert (notes["dispatcher.internal/unstarted"], notes["dispatcher.internal/disrupted"]) == ("0", "0")
    assert spec["backoffLimit"] == 0
    assert pod["restartPolicy"] == "Never"
    assert pod["activeDeadlineSeconds"] == row.get("timeout_seconds", 3600)
    assert "ttlSecondsAfterFinished" not in spec
    wanted = row.get("spec", {})
    resources = pod["containers"][0]["resources"]
    assert resources["limits"] == {"cpu": wanted.get("cpu", "10m"), "memory": wanted.get("memory", "16Mi")}
    assert resources["requests"] == resources["limits"]
    assert pod["containers"][0].get("args") == (["--row", "$$(X)"] if "args" in wanted else None)


def check_container(player: Player, task_id: int, row: dict[str, Any]) -> None:
    """Checks the environment and the payload that the container got."""
    run = player.runs_of(task_id)[0]
    for name, value in row["env"].items():
        assert run.env[name] == value
    assert run.env["TASK_QUEUE"] == row["queue"]
    assert run.env["TASK_TIMEOUT_SECONDS"] == str(row.get("timeout_seconds", 3600))
    assert run.env["POD_NAME"] == run.pod
    assert run.env["NODE_NAME"] == run.node
    assert run.started is not None
    assert run.started.payload == (json.loads(json.dumps(row["payload"])) if "payload" in row else None)
