"""The whole way of a row with real processes: Job, process kubelet, `dispatcher exec`, report and sweep."""

import pytest

from tests.controlplane.sides import BOTH_SIDES
from tests.rig.dispatching import Place
from tests.rig.noding import PYTHON, real_template
from tests.rig.realities import HANG, TRAP_SIGTERM, is_alive, real
from tests.rig.steps import waits_for

IN_PYTHON = """
from dispatcher.task import Failed, task
with task() as t:
    if not t.payload:
        raise Failed("no rows")
    t.finish({"rows": len(t.payload), "node": os.environ["NODE_NAME"]})
"""


async def cancel(place: Place, task_id: int) -> str:
    team = await place.database.connect("team_a")
    return str(await team.fetchval("SELECT dispatch.task_cancel($1, 'no need')", task_id))


@pytest.mark.promise
@BOTH_SIDES
async def test_rows_become_processes_that_report_and_their_jobs_are_swept(place: Place) -> None:
    script = 'cat "$TASK_PAYLOAD_FILE" > "$TASK_RESULT_FILE"; echo "$NODE_NAME $TASK_ATTEMPT" >&2'
    async with real(place) as (world, (node,)):
        good = await world.insert(script, payload={"n": [1, "ü"]})
        bad = await world.insert('echo "no bucket" >&2; exit 65')
        row = await world.reaches(good, "succeeded")
        assert (row["result"], row["node_name"]) == ({"n": [1, "ü"]}, node.name)
        row = await world.reaches(bad, "failed")
        assert (row["error"], row["failures"]) == ("no bucket\n", 1)
        await world.swept()
        assert [await world.outcomes(task_id) for task_id in (good, bad)] == [["succeeded"], ["failed"]]
        await world.wait(lambda: not list(node.folder.glob("pods/*")), "nothing of the Pods is left on the node", 10)


@pytest.mark.slow
@BOTH_SIDES
async def test_tasks_written_with_the_library_report(place: Place) -> None:
    async with real(place) as (world, (node,)):
        real_template(place, "python", program=PYTHON)
        good = await world.insert(IN_PYTHON, payload=[1, 2, 3], template="python")
        bad = await world.insert(IN_PYTHON, template="python")
        row = await world.reaches(good, "succeeded")
        assert (row["result"], row["node_name"]) == ({"rows": 3, "node": node.name}, node.name)
        row = await world.reaches(bad, "failed")
        assert (row["error"], row["failures"]) == ("no rows", 1)
        await world.swept()
        assert [await world.outcomes(task_id) for task_id in (good, bad)] == [["succeeded"], ["failed"]]


@pytest.mark.promise
async def test_cancel_stops_a_running_task_and_a_waiting_task_never_runs(place: Place) -> None:
    async with real(place, MAX_JOBS=1) as (world, _):
        running = await world.insert(TRAP_SIGTERM)
        (pid,) = await world.runs()
        waiting = await world.insert('touch "$MARKS/ran"')
        assert await cancel(place, waiting) == "cancelled"
        assert await cancel(place, running) == "processing"
        row = await world.reaches(running, "cancelled")
        assert (row["error"], world.words("words")) == ("no need", ["stopped"])
        await world.wait(lambda: not is_alive(pid), "its process is gone", 10)
        await world.swept()
        assert not (world.marks / "ran").exists()


@pytest.mark.slow
@pytest.mark.fault(42)
async def test_sidecar_that_never_ends_is_stopped_at_the_run_limit(place: Place) -> None:
    async with real(place) as (world, _):
        sidecar = {"name": "sidecar", "image": "process/none:1", "command": ["sleep", "1000"]}
        real_template(place, "with-sidecar", sidecars=[sidecar])
        task_id = await world.insert("true", template="with-sidecar", timeout_seconds=3)
        await world.reaches(task_id, "succeeded")
        pod = await world.the_pod("Failed")
        assert pod["status"]["reason"] == "DeadlineExceeded"
        await world.swept()
        assert await world.outcomes(task_id) == ["succeeded"]


@pytest.mark.slow
@pytest.mark.fault(45)
async def test_task_over_its_run_limit_is_stopped_and_launched_up_to_max_failures(place: Place) -> None:
    async with real(place) as (world, _):
        task_id = await world.insert(HANG, timeout_seconds=3, max_failures=2)
        (first,) = await world.runs()
        pod = await world.the_pod("Failed")
        assert (pod["status"]["reason"], is_alive(first)) == ("DeadlineExceeded", False)
        assert len(await world.runs(2)) == 2
        await waits_for(world.dispatcher, task_id, "FailuresExhausted")
        assert await world.outcomes(task_id) == ["lost", None]
        assert not any(map(is_alive, world.pids()))
