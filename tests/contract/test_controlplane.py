"""The control plane of the tests does what a cluster does, starts fast, and leaves nothing behind."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import pytest

from tests.contract.submitting import finished, submit
from tests.controlplane.api import Api, Json, KubeFault
from tests.controlplane.binaries import PACKAGES
from tests.controlplane.cluster import START_SECONDS, ControlPlane
from tests.controlplane.waiting import wait_for

pytestmark = pytest.mark.usefixtures("nodes")
STEER = "play.dispatcher.internal"
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
