"""The commands of the runbooks run as they are pasted: kubectl on a real API server, and our own commands in a shell.

The Deployments have no replicas, because no node has our image. So `exec` is only checked to be a call of kubectl's;
`test_alerts` runs the commands in it.
"""

import asyncio
import os
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.contract.installed import installed
from tests.controlplane.api import Json
from tests.controlplane.binaries import KUBECTL, programs
from tests.controlplane.cluster import ControlPlane
from tests.rig.deployed import CLUSTER_KINDS, POLICY_KINDS, rendered
from tests.rig.pages import RUNBOOKS, lines_for_a_cluster

OURS, JOBS = "dispatcher", "dispatcher-jobs"
COMMANDS = [line for line in lines_for_a_cluster(*RUNBOOKS) if line.startswith("kubectl ")]
NOT_NEEDED, SUFFIX = {"Job", "CustomResourceDefinition", "PodMonitor", "PrometheusRule", *POLICY_KINDS}, "-of-runbooks"
LEASE: Json = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "dispatcher-leader"}}


def of_this_test(one: Json) -> Json:
    """Deployments and the DaemonSet have no Pods. Cluster roles have names of their own: other tests have them, too."""
    if one["kind"] == "Deployment":
        return {**one, "spec": {**one["spec"], "replicas": 0}}
    if one["kind"] == "DaemonSet":
        one["spec"]["template"]["spec"]["nodeSelector"] = {"node": "of-nobody"}
    if one["kind"] in CLUSTER_KINDS:
        one = {**one, "metadata": {**one["metadata"], "name": f"{one['metadata']['name']}{SUFFIX}"}}
    if one.get("roleRef", {}).get("kind") == "ClusterRole":
        one = {**one, "roleRef": {**one["roleRef"], "name": f"{one['roleRef']['name']}{SUFFIX}"}}
    return one


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def environment(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[dict[str, str]]:
    """The environment of a shell in which kubectl reaches an installation with the names of the pages."""
    folder: Path = tmp_path_factory.mktemp("kubectl")
    kubeconfig = control_plane.kubeconfig(folder / "kubeconfig", token=control_plane.admin_token, namespace="default")
    kubectl = (await asyncio.to_thread(programs, KUBECTL))["kubectl"]
    for name in (OURS, JOBS):  # other tests have them, too
        if not await control_plane.exists(f"/api/v1/namespaces/{name}"):
            await control_plane.admin("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    objects = [of_this_test(one) for one in rendered("everything") if one["kind"] not in NOT_NEEDED]
    async with installed(control_plane, OURS, objects):
        yield {"PATH": f"{kubectl.parent}:{os.environ['PATH']}", "KUBECONFIG": str(kubeconfig), "HOME": str(folder)}


async def run(command: str, environment: dict[str, str]) -> tuple[int | None, str]:
    """Exit status and output of a line in a shell."""
    child = await asyncio.create_subprocess_shell(
        command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(60):
        said, _ = await child.communicate()
    return child.returncode, said.decode()


def as_it_can_run(command: str) -> str:
    """The command, but for one that needs a running Pod: its part that is kubectl's, which only prints its help."""
    words = shlex.split(command, comments=True)
    return shlex.join([*words[: words.index("--")], "--help"]) if "--" in words else command


@pytest.mark.parametrize("command", COMMANDS)
async def test_command_runs_as_it_is_pasted(
    command: str, environment: dict[str, str], control_plane: ControlPlane
) -> None:
    if " lease " in command:  # one command deletes it
        await control_plane.apply(LEASE, namespace=OURS)
    status, said = await run(as_it_can_run(command), environment)
    assert status == 0, said


async def test_wrong_command_would_be_found(environment: dict[str, str]) -> None:
    for command in (
        "kubectl -n dispatcher logs -l app=x --all-of-them", "kubectl -n dispatcher describe deployment/dispatchr",
        "kubectl -n dispatcher exec deployment/dispatcher --in-a-shell -- dispatcher status",
        "kubectl auth can-i delete nodes --as=system:serviceaccount:dispatcher:dispatcher",
    ):  # fmt: skip
        status, said = await run(as_it_can_run(command), environment)
        assert status != 0, said
