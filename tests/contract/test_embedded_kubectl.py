"""A real kubectl with the kubeconfig of the embedded cluster, which is a server without TLS."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from dispatcher.commands.logs import LogSelection, has_shown
from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import log_in
from dispatcher.model.launches import CONTAINER
from dispatcher.settings.definition import KubeSettings
from dispatcher_demo.cluster.cluster import EmbeddedCluster
from dispatcher_demo.cluster.kinds import POD as PODS
from dispatcher_demo.cluster.kinds import Target
from tests.controlplane.api import Api, KubeFault
from tests.controlplane.binaries import KUBECTL, programs

JOB = {
    "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "hello"},
    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "task", "image": "a"}]}}},
}  # fmt: skip
Kubectl = Callable[..., Awaitable[tuple[int, str]]]


@pytest_asyncio.fixture(name="cluster")
async def serve_cluster(tmp_path: Path) -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(tmp_path / "nodes") as cluster:
        yield cluster


@pytest.fixture(name="kubectl")
def make_kubectl(cluster: EmbeddedCluster, tmp_path: Path) -> Kubectl:
    """Runs kubectl. Returns its exit status and all that it prints."""
    config = cluster.write_kubeconfig(tmp_path / "kubeconfig")

    async def run(*words: str, text: object = None) -> tuple[int, str]:
        program = (await asyncio.to_thread(programs, KUBECTL))["kubectl"]
        child = await asyncio.create_subprocess_exec(
            program, "--kubeconfig", config, *words, env={"HOME": str(tmp_path)}, stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        said, _ = await child.communicate(json.dumps(text).encode() if text else None)
        return child.returncode or 0, said.decode()

    return run


async def test_kubectl_makes_shows_follows_and_deletes_a_job(kubectl: Kubectl) -> None:
    assert await kubectl("create", "--validate=false", "-f", "-", text=JOB) == (0, "job.batch/hello created\n")
    status, said = await kubectl("get", "jobs,pods", "-A", "-o", "name")
    assert (status, said.splitlines()[0], "pod/hello-" in said) == (0, "job.batch/hello", True)
    status, said = await kubectl("get", "po")
    assert (status, said.split()[:2]) == (0, ["NAME", "AGE"])
    status, said = await kubectl("describe", "job", "hello")
    assert (status, "Parallelism:" in said) == (0, True)
    assert await kubectl("get", "jobs", "-w", "-o", "name", "--request-timeout=1s") == (0, "job.batch/hello\n")
    status, said = await kubectl("delete", "job", "hello")
    assert (status, said.startswith("job.batch")) == (0, True)
    assert await kubectl("get", "job", "hello", "--ignore-not-found") == (0, "")


POD = {"containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "x:1"}], "nodeName": "east"}


async def test_kubectl_logs_shows_and_follows_the_output_until_the_pod_has_ended(
    cluster: EmbeddedCluster, kubectl: Kubectl, tmp_path: Path
) -> None:
    pod = Target(PODS, "default", "p")
    made = cluster.registry.create(Target(PODS, "default"), {"metadata": {"name": "p"}, "spec": POD})
    log = tmp_path / "nodes" / "east" / "pods" / made.object["metadata"]["uid"] / "containers" / "a" / "log"
    status, said = await kubectl("logs", "p", "-c", "a")
    assert (status, "is waiting to start" in said) == (1, True), said
    log.parent.mkdir(parents=True)
    log.write_text("one\ntwo\n")
    assert await kubectl("logs", "p", "-c", "a") == (0, "one\ntwo\n")
    assert await kubectl("logs", "p", "-c", "a", "--tail=1") == (0, "two\n")
    status, said = await kubectl("logs", "p", "-c", "c")
    assert (status, "container c is not valid for pod p" in said) == (1, True), said
    following = asyncio.ensure_future(kubectl("logs", "-f", "p", "-c", "a"))
    with log.open("a") as more:
        for number in range(3):
            more.write(f"{number}\n")
            more.flush()
            await asyncio.wait([following], timeout=0.3)
    assert not following.done()
    cluster.registry.patch(Target(PODS, "default", "p", "status"), {"status": {"phase": "Succeeded"}})
    assert await following == (0, "one\ntwo\n0\n1\n2\n")
    cluster.registry.delete(pod)
    status, said = await kubectl("logs", "p", "-c", "a")
    assert (status, "NotFound" in said) == (1, True), said


async def test_logs_shows_the_container_that_the_pod_names(
    cluster: EmbeddedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    meta = {"name": "p", "annotations": {CONTAINER: "b"}}
    made = cluster.registry.create(Target(PODS, "default"), {"metadata": meta, "spec": POD})
    folder = tmp_path / "nodes" / "east" / "pods" / made.object["metadata"]["uid"] / "containers"
    for name in "ab":
        (folder / name).mkdir(parents=True)
        (folder / name / "log").write_text(f"of {name}\n")
    config = cluster.write_kubeconfig(tmp_path / "kubeconfig")
    client = KubeClient(await log_in(KubeSettings(kubeconfig=str(config))))
    try:
        assert await has_shown(LogSelection(7), client, "default", "p")
    finally:
        await client.close()
    assert capsys.readouterr().out == "of b\n"


async def test_kubectl_learns_every_kind(kubectl: Kubectl) -> None:
    status, said = await kubectl("api-resources", "-o", "name")
    assert (status, {"pods", "nodes", "jobs.batch", "leases.coordination.k8s.io"} - {*said.split()}) == (0, set())


async def test_kubectl_without_the_token_gets_nothing(cluster: EmbeddedCluster, kubectl: Kubectl) -> None:
    for server in (cluster.url, f"{cluster.url}/{cluster.token[:-1]}", f"{cluster.url}/x{cluster.token}"):
        status, said = await kubectl("--server", server, "get", "ns")
        assert (status, "kube-system" in said) == (1, False), server


async def test_paths_of_discovery_need_the_token(cluster: EmbeddedCluster) -> None:
    stranger = Api(cluster.url, None, "nobody")
    try:
        for path in ("/api", "/apis", "/api/v1", "/apis/batch/v1", "/version"):
            with pytest.raises(KubeFault, match="401"):
                await stranger.request("GET", path)
    finally:
        await stranger.close()
