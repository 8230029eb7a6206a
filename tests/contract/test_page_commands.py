"""The commands for a cluster on the pages name folders and objects that the chart has; those of the runbooks run.

helm renders what the others install, so they need no cluster. Those of the runbooks run as they are pasted: kubectl on
a real API server, and our own commands in a shell. The Deployments have no replicas, because no node has our image. So
`exec` is only checked to be a call of kubectl's; `test_alerts` runs the commands in it.
"""

import asyncio
import os
import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from tests.contract.installed import installed
from tests.controlplane.api import Json
from tests.controlplane.binaries import KUBECTL, programs
from tests.controlplane.cluster import ControlPlane
from tests.house.tree import ROOT
from tests.rig.deployed import CLUSTER_KINDS, POLICY_KINDS, helm, rendered
from tests.rig.pages import INSTALL, RUNBOOKS, TUTORIAL, blocks_of, lines_for_a_cluster, read_page

LINES = list(lines_for_a_cluster())
COMMANDS = sorted({line for line in LINES if "kubectl " in line})
RELEASES = sorted({line for line in LINES if re.match("helm (install|upgrade) ", line)})
NAMED = re.compile(r"(deployment|job|service|configmap)/([a-z-]+)")


def objects_of_charts() -> set[tuple[str, str, str]]:
    """Kind, name and namespace of every object. An object of the whole cluster has no namespace."""
    objects = (*rendered(), *rendered("everything"))
    return {(one["kind"].lower(), one["metadata"]["name"], one["metadata"].get("namespace", "")) for one in objects}


def namespace_of(words: list[str]) -> str:
    return words[words.index("-n") + 1] if "-n" in words else ""


@pytest.mark.parametrize("command", COMMANDS)
def test_command_names_what_is_installed(command: str) -> None:
    words = shlex.split(command, comments=True)
    named = {(*found.groups(), namespace_of(words)) for word in words if (found := NAMED.fullmatch(word))}
    roles = {("clusterrole", name, "") for name in re.findall(r"--clusterrole=(\S+)", command)}
    assert named | roles <= objects_of_charts()
    files = [word for word in words if re.fullmatch(r"deploy/\S+\.\w+", word)]
    assert [word for word in files if not (ROOT / word).exists()] == []


@pytest.mark.parametrize("command", RELEASES)
def test_release_of_the_page_renders(command: str, tmp_path: Path) -> None:
    """With the values of the page of installation, which are also those that a release has before."""
    words = shlex.split(command, comments=True)
    assert words[2:6] == ["dispatcher", "deploy/chart", "-n", "dispatcher"]
    (page,) = [block.text for block in blocks_of(INSTALL, read_page(INSTALL)) if "values.yaml" in block.text[:20]]
    options = ["-" if word == "values.yaml" else word for word in words[6:]]
    if (reuse := "--reset-then-reuse-values") in options:
        options[options.index(reuse)] = "--values=-"
    done = helm(
        "template", "dispatcher", ROOT / "deploy" / "chart", "-n", "dispatcher", *saved(options, tmp_path), stdin=page
    )
    assert done.returncode == 0, done.stderr
    made = [one for one in yaml.safe_load_all(done.stdout) if one and one["metadata"]["name"] == "dispatcher-templates"]
    assert ["report.yaml" in one.get("data", ()) for one in made] == ["--set-file" in options]


def saved(options: list[str], folder: Path) -> list[str]:
    """The options, with the tutorial's template as the file that they name."""
    (template,) = [block.text for block in blocks_of(TUTORIAL, read_page(TUTORIAL)) if block.language == "yaml"]
    file = folder / "report.yaml"
    file.write_text(template, encoding="utf-8")
    return [re.sub(r"(?<==)report\.yaml$", str(file), option) for option in options]


def test_namespaces_of_the_page_are_those_of_the_release() -> None:
    made = {words[3] for line in LINES if (words := line.split())[:3] == ["kubectl", "create", "namespace"]}
    assert made == {one["metadata"].get("namespace", "dispatcher") for one in rendered()}


OURS, JOBS = "dispatcher", "dispatcher-jobs"
OF_RUNBOOKS = [line for line in lines_for_a_cluster(*RUNBOOKS) if line.startswith("kubectl ")]
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


@pytest.mark.parametrize("command", OF_RUNBOOKS)
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
