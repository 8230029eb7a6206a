"""The control plane of the tests does what a cluster does, starts fast, and leaves nothing behind.

Its player runs containers as kubelet does, each once, also through restarts of the API server. No SQL here.
"""

import asyncio
import os
import time
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from tests.contract.submitting import finished, submit
from tests.controlplane.api import Api, Json, KubeFault
from tests.controlplane.binaries import PACKAGES
from tests.controlplane.cluster import START_SECONDS, ControlPlane
from tests.controlplane.player import STEER, Player
from tests.controlplane.programs import TaskCalls
from tests.controlplane.waiting import wait_for

pytestmark = pytest.mark.usefixtures("nodes")
ROLE = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: narrow}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: narrow}
rules:
- {apiGroups: [batch], resources: [jobs], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: narrow, namespace: elsewhere}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: narrow}
subjects: [{kind: ServiceAccount, name: narrow, namespace: elsewhere}]
"""


def job(name: str, steer: Mapping[str, str]) -> Json:
    template = {
        "metadata": {"annotations": {f"{STEER}/{key}": value for key, value in steer.items()}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "task", "image": "localhost/x:1"}]},
    }
    return {"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": template}}


def container_state(pod: Json) -> Json:
    state: Json = pod["status"]["containerStatuses"][0]["state"]
    return state


def cpu_seconds(pid: int) -> float:
    """The processor time of a process so far. Other programs of a busy machine hardly change it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = fields[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


class TestJobs:
    async def test_deleted_pod_ends_before_it_is_gone(self, control_plane: ControlPlane, namespace: str) -> None:
        await submit(control_plane, namespace, job("running", {}))
        await submit(control_plane, namespace, job("stuck", {"waiting": "ErrImagePull"}))
        ends = {}
        async for change in control_plane.api.follow(f"/api/v1/namespaces/{namespace}/pods"):
            for pod in change.objects:
                name, meta = pod["metadata"]["labels"]["batch.kubernetes.io/job-name"], pod["metadata"]
                if change.type == "DELETED":
                    ends[name] = container_state(pod)["terminated"]
                elif "startTime" in pod["status"] and "deletionTimestamp" not in meta:
                    await control_plane.admin("DELETE", f"/api/v1/namespaces/{namespace}/pods/{meta['name']}")
            if len(ends) == 2:
                break
        assert (ends["running"]["exitCode"], ends["running"]["reason"]) == (143, "Error")
        assert (ends["stuck"]["exitCode"], ends["stuck"]["reason"]) == (137, "ContainerStatusUnknown")
        await finished(control_plane, namespace, "running", "Failed")
        await finished(control_plane, namespace, "stuck", "Failed")


class TestIdentities:
    async def test_role_gives_only_its_rights(
        self, control_plane: ControlPlane, namespace: str, tmp_path: Path
    ) -> None:
        (tmp_path / "role.yaml").write_text(ROLE)
        for _ in ("created", "replaced"):
            await control_plane.apply(tmp_path / "role.yaml", namespace=namespace)
        token = await control_plane.service_account_token(namespace, "narrow")
        narrow = Api(control_plane.url, control_plane.ca_file, token)
        jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        try:
            assert (await narrow.request("GET", jobs))["items"] == []
            with pytest.raises(KubeFault, match=r"jobs\.batch is forbidden") as refused:
                await narrow.request("POST", jobs, job("a", {}))
            assert refused.value.status == 403
            with pytest.raises(KubeFault):
                await narrow.request("GET", "/api/v1/nodes")
        finally:
            await narrow.close()

        def refusals() -> list[int]:
            user = f"system:serviceaccount:{namespace}:narrow"
            return [event.code for event in control_plane.audit(user_prefix=user, verb="create", resource="jobs")]

        assert await control_plane.wait_for(refusals, "the refused create in the audit log") == [403]

    async def test_audit_log_names_the_creator_of_a_job(self, control_plane: ControlPlane, namespace: str) -> None:
        await submit(control_plane, namespace, job("a", {"run-seconds": "0"}))
        (created,) = await control_plane.wait_for(
            lambda: control_plane.audit(verb="create", resource="jobs", namespace=namespace), "the create"
        )
        assert (created.user, created.code, created.object_ref.name) == ("admin", 201, "a")
        assert created.request_object
        assert created.request_object["spec"]["backoffLimit"] == 0
        assert created.received_at < created.stage_at
        await finished(control_plane, namespace, "a", "Complete")
        pods = control_plane.audit(verb="create", resource="pods", namespace=namespace)
        assert [pod.user for pod in pods] == ["system:kube-controller-manager"]


class TestOwnPlane:
    """A control plane of its own: measures and outages here must not touch other tests."""

    @pytest.mark.slow
    async def test_plane_starts_fast_survives_outages_and_leaves_nothing(self, tmp_path: Path) -> None:
        before = time.monotonic()
        async with ControlPlane(logs_in=tmp_path) as plane:
            assert time.monotonic() - before < START_SECONDS  # 5 on a machine with nothing else to do
            servers = plane.pids()
            assert sum(map(cpu_seconds, servers.values())) < 8  # 2 as measured, also on a busy machine
            assert set(servers) == set(PACKAGES)
            assert plane.ca_file is not None
            folder = plane.ca_file.parent.parent
            namespace = await plane.create_namespace()
            await self._comes_back(plane, namespace)
            await self._thaws(plane, namespace)
        for pid in servers.values():
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
        assert not folder.exists()
        assert {"audit.log", "etcd.log", "kwok.log"} <= {path.name for path in plane.logs.iterdir()}

    async def _comes_back(self, plane: ControlPlane, namespace: str) -> None:
        made = await submit(plane, namespace, job("kept", {"run-seconds": "0"}))
        await plane.stop_api_server()
        with pytest.raises(aiohttp.ClientConnectorError):
            await plane.admin("GET", "/api/v1/namespaces")
        await plane.start_api_server()
        again = await plane.admin("GET", f"/apis/batch/v1/namespaces/{namespace}/jobs/kept")
        assert again["metadata"]["uid"] == made["metadata"]["uid"]
        await plane.add_nodes(1)
        await finished(plane, namespace, "kept", "Complete")

    async def _thaws(self, plane: ControlPlane, namespace: str) -> None:
        plane.pause()
        with pytest.raises(TimeoutError):
            await wait_for(lambda: plane.admin("GET", "/api/v1/namespaces"), "a frozen server's answer", 0.3)
        plane.resume()
        await submit(plane, namespace, job("after", {"run-seconds": "0"}))
        await finished(plane, namespace, "after", "Complete")


OURS = {"app.kubernetes.io/managed-by": "dispatcher", "dispatcher.internal/task-id": "7"}


def played_job(name: str, *env: Json, steer: Mapping[str, str] | None = None) -> Json:
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
            played_job(
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
        await submit(control_plane, namespace, played_job("a"))
        await finished(control_plane, namespace, "a", "Failed")
    assert [run.exit_code for run in player.runs] == [1]
    assert [str(fault.error) for fault in player.faults] == ["no such luck"]


@pytest.mark.slow
async def test_many_pods_at_once_run_once_each(control_plane: ControlPlane, namespace: str) -> None:
    body = played_job("many")
    body["spec"] |= {"parallelism": 100, "completions": 100}
    async with Player(control_plane, namespace, behaviour=exit_as_told) as player:
        await submit(control_plane, namespace, body)
        await finished(control_plane, namespace, "many", "Complete", seconds=60)
    assert len(player.runs) == len({run.pod_uid for run in player.runs}) == 100
    assert player.faults == []


async def test_program_ends_with_its_pod(control_plane: ControlPlane, namespace: str) -> None:
    gate = Gate()
    async with Player(control_plane, namespace, behaviour=gate) as player:
        await submit(control_plane, namespace, played_job("a"))
        await control_plane.wait_for(lambda: player.runs, "a run")
        await control_plane.admin("DELETE", f"/api/v1/namespaces/{namespace}/pods/{player.runs[0].pod}")
        await asyncio.wait_for(gate.cut_off.wait(), 10)
        await finished(control_plane, namespace, "a", "Failed")
    assert player.runs[0].exit_code is None


async def test_program_behind_a_partition_outlives_its_pod(control_plane: ControlPlane, namespace: str) -> None:
    gate = Gate()
    async with Player(control_plane, namespace, behaviour=gate) as player:
        await submit(control_plane, namespace, played_job("a", steer={"outlives-pod": "true"}))
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
        await submit(control_plane, namespace, played_job("a"))
        await control_plane.wait_for(lambda: player.runs, "a run")
        await control_plane.stop_api_server()
        gate.opened.set()
        await control_plane.wait_for(lambda: player.runs[0].exit_code is not None, "the end of the program")
        await control_plane.start_api_server()
        await finished(control_plane, namespace, "a", "Complete", seconds=60)
    assert player.faults == []
