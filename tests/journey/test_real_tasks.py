"""The whole way of a row with real processes: Job, process kubelet, `dispatcher exec`, report and sweep."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.controlplane.sides import BOTH_SIDES
from tests.dispatching import Dispatcher, Place
from tests.noding import Node, nodes
from tests.realities import HANG, TRAP_SIGTERM, Real, is_alive


@asynccontextmanager
async def real(place: Place, **settings: object) -> AsyncIterator[tuple[Real, Node]]:
    async with nodes(place, "one") as (node,), Dispatcher(place, TOMBSTONE_SECONDS=1, **settings) as dispatcher:
        yield Real(place, dispatcher), node


async def cancel(place: Place, task_id: int) -> str:
    team = await place.database.connect("team_a")
    return str(await team.fetchval("SELECT dispatch.task_cancel($1, 'no need')", task_id))


@BOTH_SIDES
async def test_row_becomes_a_process_with_a_result_and_its_job_is_swept(place: Place) -> None:
    script = 'cat "$TASK_PAYLOAD_FILE" > "$TASK_RESULT_FILE"; echo "$NODE_NAME $TASK_ATTEMPT" >&2'
    async with real(place) as (world, node):
        task_id = await world.insert(script, payload={"n": [1, "ü"]})
        row = await world.reaches(task_id, "succeeded")
        assert (row["result"], row["node_name"]) == ({"n": [1, "ü"]}, node.name)
        assert await world.outcomes(task_id) == ["succeeded"]
        await world.swept()
        await world.wait(lambda: not list(node.folder.glob("pods/*")), "nothing of the Pod is left on the node", 10)


async def test_retry_runs_as_the_second_attempt(place: Place) -> None:
    script = 'test "$TASK_ATTEMPT" = 2 && exit 0; echo "not now" >&2; exit 75'
    async with real(place) as (world, _):
        task_id = await world.insert(script, max_failures=3)
        row = await world.reaches(task_id, "succeeded")
        assert (row["attempt"], row["failures"], row["error"]) == (2, 1, None)
        runs = await place.database.launches(task_id)
        assert [(run["attempt"], run["outcome"], run["error"]) for run in runs] == [
            (1, "retry", "not now\n"),
            (2, "succeeded", None),
        ]
        await world.swept()


@BOTH_SIDES
async def test_failure_keeps_the_end_of_stderr_and_is_not_repeated(place: Place) -> None:
    async with real(place) as (world, _):
        task_id = await world.insert('echo "no such bucket" >&2; exit 3')
        row = await world.reaches(task_id, "failed")
        assert (row["error"], row["failures"]) == ("no such bucket\n", 1)
        assert await world.outcomes(task_id) == ["failed"]
        await world.swept()


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


async def test_task_over_its_run_limit_is_stopped_and_launched_up_to_max_failures(place: Place) -> None:
    async with real(place) as (world, _):
        task_id = await world.insert(HANG, timeout_seconds=3, max_failures=2)
        (first,) = await world.runs()
        pod = await world.the_pod("Failed")
        assert (pod["status"]["reason"], is_alive(first)) == ("DeadlineExceeded", False)
        assert len(await world.runs(2)) == 2
        await world.held("FailuresExhausted")
        assert await world.outcomes(task_id) == ["lost", None]
        assert not any(map(is_alive, world.pids()))


@BOTH_SIDES
async def test_killed_command_fails_its_row_and_names_the_signal(place: Place) -> None:
    async with real(place) as (world, _):
        task_id = await world.insert("kill -9 $$")
        row = await world.reaches(task_id, "failed")
        assert row["error"] == "CMD was ended by SIGKILL"
        state = (await world.the_pod("Failed"))["status"]["containerStatuses"][0]["state"]
        assert state["terminated"]["exitCode"] == 137
