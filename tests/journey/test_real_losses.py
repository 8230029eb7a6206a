"""Real processes: kubelets, wrappers, Pods and nodes are lost during a run."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.dispatching import Dispatcher, Place
from tests.noding import Node, nodes, real_template
from tests.postgres import PostgresServer
from tests.realities import HANG, TRAP_SIGTERM, Real, crash, is_alive, mark_unreachable, wrapper_of

UNREACHABLE = {
    "key": "node.kubernetes.io/unreachable",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 1,
}
WAIT_FOR_GO = 'echo $$ >> "$MARKS/pids"; while ! test -e "$MARKS/go"; do sleep 0.05; done'


@asynccontextmanager
async def real(place: Place, *names: str, **settings: object) -> AsyncIterator[tuple[Real, list[Node]]]:
    dispatcher = Dispatcher(place, **{"TOMBSTONE_SECONDS": 1, **settings})
    async with nodes(place, *(names or ("one",))) as made, dispatcher:
        yield Real(place, dispatcher), made


async def test_restarted_kubelet_finds_its_containers_as_they_are(place: Place) -> None:
    async with real(place) as (world, (node,)):
        tasks = [await world.insert(WAIT_FOR_GO) for _ in range(2)]
        pids = await world.runs(2)
        await node.kill()
        (world.marks / "go").touch()  # the containers end while no kubelet runs
        for task_id in tasks:
            await world.reaches(task_id, "succeeded")
        await node.start()
        await world.swept()
        assert world.pids() == pids
        assert [await world.outcomes(task_id) for task_id in tasks] == [["succeeded"]] * 2


async def test_killed_wrapper_ends_its_command_and_the_next_launch_takes_over(place: Place) -> None:
    async with real(place) as (world, _):
        task_id = await world.insert(f'test "$TASK_LAUNCH" = 2 && exit 0; {HANG}')
        (pid,) = await world.runs()
        os.kill(wrapper_of(pid), signal.SIGKILL)
        row = await world.reaches(task_id, "succeeded")
        assert (row["attempt"], row["launch"], is_alive(pid)) == (1, 2, False)
        assert await world.outcomes(task_id) == ["lost", "succeeded"]


async def test_sigterm_during_a_run_reports_nothing_and_the_next_launch_takes_over(place: Place) -> None:
    async with real(place) as (world, _):
        task_id = await world.insert(f'test "$TASK_LAUNCH" = 2 && exit 0; {TRAP_SIGTERM}')
        await world.runs()
        await world.delete_pod()
        row = await world.reaches(task_id, "succeeded")
        assert (row["launch"], row["failures"], world.words("words")) == (2, 0, ["stopped"])
        assert await world.outcomes(task_id) == ["lost", "succeeded"]


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


async def test_command_that_ignores_sigterm_is_killed_after_the_grace(place: Place) -> None:
    async with real(place) as (world, _):
        await world.insert(f"trap '' TERM; {HANG}", max_failures=1)
        (pid,) = await world.runs()
        await world.delete_pod(gracePeriodSeconds=2)
        await world.wait(lambda: not is_alive(pid), "it is killed", 10)
        await world.held("FailuresExhausted")


async def test_launch_that_finds_its_row_taken_does_nothing_and_succeeds(place: Place) -> None:
    """The first node's kubelet is dead, and its container works on. Its Job is deleted, and launch 2 comes late."""
    async with real(place, TOMBSTONE_SECONDS=300) as (world, (node,)):
        task_id = await world.insert(WAIT_FOR_GO)
        pids = await world.runs()
        await node.kill()
        await node.cordon()
        jobs = f"/apis/batch/v1/namespaces/{place.namespace}/jobs"
        await place.control_plane.admin("DELETE", jobs, params={"propagationPolicy": "Background"})
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


@pytest.mark.fault(38)
async def test_rebooted_node_reports_its_containers_as_lost(place: Place) -> None:
    async with real(place) as (world, (node,)):
        task_id = await world.insert(f'test "$TASK_LAUNCH" = 2 && exit 0; {HANG}')
        (pid,) = await world.runs()
        await node.kill()
        crash(node)
        await world.wait(lambda: not is_alive(pid), "its container is gone", 5)
        await node.start()
        state = (await world.the_pod("Failed"))["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (state["exitCode"], state["reason"]) == (255, "Unknown")
        await world.reaches(task_id, "succeeded")


@pytest.mark.fault(38)
async def test_task_of_a_lost_node_runs_on_another_node(place: Place) -> None:
    async with real(place, "one", "two", NODE_LOST_SECONDS=3) as (world, made):
        real_template(place, pod={"tolerations": [UNREACHABLE]})  # by default the Pod is evicted after five minutes
        task_id = await world.insert(f'test "$TASK_LAUNCH" = 2 && exit 0; {HANG}')
        await world.runs()
        row = await world.row(task_id)
        (lost,) = [node for node in made if node.name == row["node_name"]]
        await lost.kill()
        crash(lost)
        await mark_unreachable(place, lost)
        row = await world.reaches(task_id, "succeeded", 150)
        assert (row["launch"], row["node_name"] != lost.name) == (2, True)
        assert await world.outcomes(task_id) == ["lost", "succeeded"]


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


async def test_two_hundred_tasks_at_once_each_run_once(place: Place) -> None:
    async with real(place, "one", "two", MAX_JOBS=200) as (world, _):
        script = 'echo "$TASK_ID" >> "$MARKS/ids"; echo "{\\"id\\": $TASK_ID}" > "$TASK_RESULT_FILE"'
        tasks = [await world.insert(script) for _ in range(200)]

        async def all_over() -> bool:
            return not await place.rows("status <> 'succeeded'")

        await world.wait(all_over, "200 rows succeeded", 150)
        await world.swept()
        assert sorted(map(int, world.words("ids"))) == tasks
        assert [row["result"] for row in await place.rows()] == [{"id": task_id} for task_id in tasks]
