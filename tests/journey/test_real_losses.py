"""Real processes: kubelets, wrappers, Pods and nodes are lost during a run."""

import os
import signal

import pytest

from tests.rig.dispatching import Place
from tests.rig.janitoring import delete_jobs
from tests.rig.noding import Node, real_template
from tests.rig.postgres import PostgresServer
from tests.rig.realities import HANG, TRAP_SIGTERM, Real, is_alive, real, wrapper_of
from tests.rig.steps import all_done

WAIT_FOR_GO = 'echo $$ >> "$MARKS/pids"; while ! test -e "$MARKS/go"; do sleep 0.05; done'


@pytest.mark.slow
@pytest.mark.fault(42)
@pytest.mark.parametrize("sidecars", [0, 1], ids=["alone", "beside a sidecar without end"])
async def test_killed_wrapper_ends_its_command_and_the_next_launch_takes_over(place: Place, sidecars: int) -> None:
    async with real(place) as (world, _):
        sidecar = {"name": "sidecar", "image": "process/none:1", "command": ["sleep", "1000"]}
        real_template(place, "beside", sidecars=[sidecar] * sidecars)
        task_id = await world.insert(f'test "$TASK_LAUNCH" = 2 && exit 0; {HANG}', template="beside")
        (pid,) = await world.runs()
        os.kill(wrapper_of(pid), signal.SIGKILL)
        row = await world.reaches(task_id, "succeeded", 90)
        assert (row["attempt"], row["launch"], is_alive(pid)) == (1, 2, False)
        assert await world.outcomes(task_id) == ["lost", "succeeded"]


@pytest.mark.slow
async def test_sigterm_during_a_run_reports_nothing_and_the_next_launch_takes_over(place: Place) -> None:
    async with real(place) as (world, _):
        task_id = await world.insert(f'test "$TASK_LAUNCH" = 2 && exit 0; {TRAP_SIGTERM}')
        await world.runs()
        await world.delete_pod()
        row = await world.reaches(task_id, "succeeded")
        assert (row["launch"], row["failures"], world.words("words")) == (2, 0, ["stopped"])
        assert await world.outcomes(task_id) == ["lost", "succeeded"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"gracePeriodSeconds": 1}, {"gracePeriodSeconds": 0}],
    ids=["as kubectl does", "in a hurry", "by force"],
)
async def test_pod_that_somebody_deletes_twice_costs_no_failure(place: Place, options: dict[str, int]) -> None:
    """With two failures the row would be over. A Pod that is deleted by force has no time to say anything."""
    async with real(place) as (world, _):
        task_id = await world.insert(f'test "$TASK_LAUNCH" = 3 && exit 0; {TRAP_SIGTERM}', max_failures=2)
        for launches in (1, 2):
            await world.runs(launches)
            await world.delete_pod(**options)
        row = await world.reaches(task_id, "succeeded", 90)
        assert (row["launch"], row["failures"]) == (3, 0)
        assert options == {"gracePeriodSeconds": 0} or world.words("words") == ["stopped", "stopped"]
        assert await world.outcomes(task_id) == ["lost", "lost", "succeeded"]


@pytest.mark.slow
async def test_sigterm_before_the_start_costs_a_launch_and_nothing_else(place: Place, postgres: PostgresServer) -> None:
    """SIGTERM comes while the container waits for the database and has not called `task_start` yet."""
    async with real(place, "one") as (world, (node,)):
        await node.kill()
        task_id = await world.insert("true")
        await world.the_pod("Pending")
        await postgres.stop()
        try:
            await node.start()
            await world.the_pod("Running")
            await world.delete_pod()
            await world.wait(world.no_pods, "the container ended without a start", 20)
        finally:
            await postgres.start()
        row = await world.reaches(task_id, "succeeded", 60)
        assert (row["launch"], await world.outcomes(task_id)) == (2, ["succeeded"])


@pytest.mark.slow
async def test_report_blocked_past_the_grace_is_lost_and_the_next_launch_takes_over(
    place: Place, postgres: PostgresServer
) -> None:
    """CMD is over and the report waits for a stopped database. The grace of the Pod ends first."""
    async with real(place) as (world, _):
        task_id = await world.insert(f'test "$TASK_LAUNCH" = 2 && exit 0; {WAIT_FOR_GO}')
        (pid,) = await world.runs()
        wrapper = wrapper_of(pid)
        await postgres.stop()
        try:
            (world.marks / "go").touch()
            await world.wait(lambda: not is_alive(pid), "CMD is over", 10)
            await world.delete_pod(gracePeriodSeconds=1)
            await world.wait(lambda: not is_alive(wrapper), "the grace is over", 20)
        finally:
            await postgres.start()
        row = await world.reaches(task_id, "succeeded", 60)
        assert (row["launch"], await world.outcomes(task_id)) == (2, ["lost", "succeeded"])


@pytest.mark.slow
async def test_launch_that_finds_its_row_taken_does_nothing_and_succeeds(place: Place) -> None:
    """The first node's kubelet is dead, and its container works on. Its Job is deleted, and launch 2 comes late."""
    async with real(place, TOMBSTONE_SECONDS=300) as (world, (node,)):
        task_id = await world.insert(WAIT_FOR_GO)
        pids = await world.runs()
        await node.kill()
        await node.cordon()
        await delete_jobs(place, task_id)
        second = Node(place, "two")
        try:
            await world.wait(lambda: launch_2(world), "the second launch", 40)
            (world.marks / "go").touch()
            await world.reaches(task_id, "succeeded")
            await second.start()
            pod = await world.the_pod("Succeeded")
            assert pod["spec"]["nodeName"] == second.name
            assert world.pids() == pids
            assert await world.outcomes(task_id) == ["succeeded"]
        finally:
            await second.remove()


async def launch_2(world: Real) -> bool:
    return any("r2" in str(job["metadata"]) for job in await world.place.jobs())


@pytest.mark.promise
async def test_database_restart_during_runs_loses_no_result(place: Place, postgres: PostgresServer) -> None:
    async with real(place) as (world, _):
        script = f'{WAIT_FOR_GO}; echo "{{\\"n\\": $N}}" > "$TASK_RESULT_FILE"'
        tasks = [await world.insert(script, env={"N": str(number)}) for number in range(5)]
        await world.runs(5)
        await postgres.stop()
        (world.marks / "go").touch()
        await world.wait(lambda: not any(map(is_alive, world.pids())), "every CMD is over", 10)
        await postgres.start()
        rows = [await world.reaches(task_id, "succeeded") for task_id in tasks]
        assert [row["result"] for row in rows] == [{"n": number} for number in range(5)]
        assert [await world.outcomes(task_id) for task_id in tasks] == [["succeeded"]] * 5


@pytest.mark.slow
async def test_hundred_tasks_at_once_each_run_once(place: Place) -> None:
    async with real(place, "one", "two", MAX_JOBS=100) as (world, _):
        script = 'echo "$TASK_ID" >> "$MARKS/ids"; echo "{\\"id\\": $TASK_ID}" > "$TASK_RESULT_FILE"'
        tasks = [await world.insert(script) for _ in range(100)]
        await all_done(place, 150, world.dispatcher.check)
        assert sorted(map(int, world.words("ids"))) == tasks
        assert [row["result"] for row in await place.rows()] == [{"id": task_id} for task_id in tasks]
