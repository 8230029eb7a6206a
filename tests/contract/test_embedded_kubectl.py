"""A real kubectl with the kubeconfig of the embedded cluster, which is a server without TLS."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from dispatcher.local.cluster.cluster import EmbeddedCluster
from tests.controlplane.api import Api, KubeFault
from tests.controlplane.binaries import KUBECTL, programs

JOB = {
    "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "hello"},
    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "task", "image": "a"}]}}},
}  # fmt: skip
Kubectl = Callable[..., Awaitable[tuple[int, str]]]


@pytest_asyncio.fixture(name="cluster")
async def serve_cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster() as cluster:
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
