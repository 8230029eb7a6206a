"""The player runs containers as kubelet does, each once, also through restarts of the API server. No SQL here."""

import asyncio
from collections.abc import Mapping

import pytest
import pytest_asyncio

from tests.contract.submitting import finished, submit
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.player import STEER, Player
from tests.controlplane.programs import TaskCalls

pytestmark = pytest.mark.usefixtures("nodes")
OURS = {"app.kubernetes.io/managed-by": "dispatcher", "dispatcher.internal/task-id": "7"}


def job(name: str, *env: Json, steer: Mapping[str, str] | None = None) -> Json:
    container = {
        "name": "task",
        "image": "localhost/x:1",
        "envFrom": [{"secretRef": {"name": "database"}}, {"configMapRef": {"name": "absent", "optional": True}}],
        "env": [{"name": "TASK_ID", "value": "7"}, *env],
    }
    annotations = {f"{STEER}/{key}": value for key, value in (steer or {}).items()}
    template = {
        "metadata": {"labels": OURS, "annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": template}}


def from_field(name: str, path: str) -> Json:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


async def exit_as_told(env: Mapping[str, str], calls: TaskCalls) -> int:
    return int(env.get("CODE", "0"))


async def fail_to_run(env: Mapping[str, str], calls: TaskCalls) -> int:
    raise RuntimeError("no such luck")


class Gate:
    """A program that ends when the test opens the gate."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.cut_off = asyncio.Event()

    async def __call__(self, env: Mapping[str, str], calls: TaskCalls) -> int:
        try:
            await self.opened.wait()
        except asyncio.CancelledError:
            self.cut_off.set()
            raise
        return 0


@pytest_asyncio.fixture(loop_scope="session", autouse=True)
async def secret(control_plane: ControlPlane, namespace: str) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "database"}, "stringData": {"URL": "db://x"}}
    await control_plane.apply(body, namespace=namespace)


async def test_container_sees_its_environment_and_nothing_else(control_plane: ControlPlane, namespace: str) -> None:
    async with Player(control_plane, namespace, behaviour=exit_as_told) as player:
        made = await submit(
            control_plane,
            namespace,
            job(
                "a",
                {"name": "WHERE", "value": "$(URL)/$(TASK_ID) $$(URL) $(LATER)"},
                {"name": "LATER", "value": "x"},
                from_field("JOB_UID", "metadata.labels['batch.kubernetes.io/controller-uid']"),
                from_field("NODE_NAME", "spec.nodeName"),
                from_field("POD_NAME", "metadata.name"),
            ),
        )
        await finished(control_plane, namespace, "a", "Complete")
    (run,) = player.runs_of(7)
    assert run.env == {
        "URL": "db://x",
        "TASK_ID": "7",
        "WHERE": "db://x/7 $(URL) $(LATER)",
        "LATER": "x",
        "JOB_UID": made["metadata"]["uid"],
        "NODE_NAME": run.node,
        "POD_NAME": run.pod,
    }
    assert (run.task_id, run.job_uid, run.exit_code, run.started) == (7, made["metadata"]["uid"], 0, None)
    assert player.faults == []


async def test_program_that_raises_ends_with_exit_code_one(control_plane: ControlPlane, namespace: str) -> None:
    async with Player(control_plane, namespace, behaviour=fail_to_run) as player:
        await submit(control_plane, namespace, job("a"))
        await finished(control_plane, namespace, "a", "Failed")
    assert [run.exit_code for run in player.runs] == [1]
    assert [str(fault.error) for fault in player.faults] == ["no such luck"]


@pytest.mark.slow
async def test_many_pods_at_once_run_once_each(control_plane: ControlPlane, namespace: str) -> None:
    body = job("many")
    body["spec"] |= {"parallelism": 100, "completions": 100}
    async with Player(control_plane, namespace, behaviour=exit_as_told) as player:
        await submit(control_plane, namespace, body)
        await finished(control_plane, namespace, "many", "Complete", seconds=60)
    assert len(player.runs) == len({run.pod_uid for run in player.runs}) == 100
    assert player.faults == []


async def test_program_ends_with_its_pod(control_plane: ControlPlane, namespace: str) -> None:
    gate = Gate()
    async with Player(control_plane, namespace, behaviour=gate) as player:
        await submit(control_plane, namespace, job("a"))
        await control_plane.wait_for(lambda: player.runs, "a run")
        await control_plane.admin("DELETE", f"/api/v1/namespaces/{namespace}/pods/{player.runs[0].pod}")
        await asyncio.wait_for(gate.cut_off.wait(), 10)
        await finished(control_plane, namespace, "a", "Failed")
    assert player.runs[0].exit_code is None


async def test_program_behind_a_partition_outlives_its_pod(control_plane: ControlPlane, namespace: str) -> None:
    gate = Gate()
    async with Player(control_plane, namespace, behaviour=gate) as player:
        await submit(control_plane, namespace, job("a", steer={"outlives-pod": "true"}))
        await control_plane.wait_for(lambda: player.runs, "a run")
        await control_plane.admin("DELETE", f"/api/v1/namespaces/{namespace}/pods/{player.runs[0].pod}")
        await finished(control_plane, namespace, "a", "Failed")
        gate.opened.set()
        await control_plane.wait_for(lambda: player.runs[0].exit_code is not None, "the end of the program")
    assert not gate.cut_off.is_set()
    assert player.faults == []


@pytest.mark.slow
async def test_exit_is_reported_when_the_api_server_is_back(control_plane: ControlPlane, namespace: str) -> None:
    gate = Gate()
    async with Player(control_plane, namespace, behaviour=gate) as player:
        await submit(control_plane, namespace, job("a"))
        await control_plane.wait_for(lambda: player.runs, "a run")
        await control_plane.stop_api_server()
        gate.opened.set()
        await control_plane.wait_for(lambda: player.runs[0].exit_code is not None, "the end of the program")
        await control_plane.start_api_server()
        await finished(control_plane, namespace, "a", "Complete", seconds=60)
    assert player.faults == []
