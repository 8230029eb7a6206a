"""Installs the dispatcher into the cluster of a site, as docs/install.md tells an administrator to do."""

import asyncio
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from tests.controlplane.api import KubeFault
from tests.controlplane.binaries import HELM, KUBECTL, programs
from tests.node.place import SERVICES
from tests.node.registry import DISPATCHER, PYTHON_TASK
from tests.node.site import Site
from tests.node.templates import TEMPLATES
from tests.rig.deployed import CHART, DEPLOY
from tests.rig.pages import INSTALL, find_block
from tests.rig.postgres import Database
from tests.rig.postgres_process import binaries

ROOT: Final = DEPLOY.parent
OURS: Final = "dispatcher"
JOBS: Final = "dispatcher-jobs"
BEGINNING: Final = "# needs a cluster\nkubectl create namespace dispatcher\n"
REPOSITORY: Final = DISPATCHER.rpartition(":")[0]
SETTINGS: Final = {
    "IMAGE": PYTHON_TASK,
    "CPU_REQUEST": "100m",
    "CPU_LIMIT": "1",
    "MEMORY_REQUEST": "64Mi",
    "MEMORY_LIMIT": "160Mi",
    "MAX_JOBS": 12,
    "START_DEADLINE_SECONDS": 20,
    "MAX_LAUNCHES": 2,
    "PARK_SECONDS": 5,
}
"""Times that a test can wait for, and amounts that the nodes have. The rest is as an operator gets it."""
QUEUES: Final = ({"name": "reports", "max_jobs": 20},)
VALUES: Final[Mapping[str, object]] = {
    "jobsNamespace": JOBS,
    "image": {"repository": REPOSITORY},
    "settings": SETTINGS,
    "queues": QUEUES,
    "templates": {f"{name}.yaml": template for name, template in TEMPLATES.items()},
}
READY_SECONDS: Final = 60
SECONDS_OF_LEASE: Final = 15
"""The default of LEASE_SECONDS."""


class Shell:
    """A shell of the administrator: kubectl, helm, psql and dispatcher, in a checkout."""

    def __init__(self, site: Site, folder: Path) -> None:
        plane = site.plane
        kubeconfig = plane.kubeconfig(folder / "admin", token=plane.admin_token, namespace="default")
        tools = [programs(module)[name].parent for module, name in ((KUBECTL, "kubectl"), (HELM, "helm"))]
        path = ":".join(map(str, (*tools, Path(sys.executable).parent, binaries(), os.environ["PATH"])))
        self._env = {"PATH": path, "KUBECONFIG": str(kubeconfig), "HOME": str(folder)}

    async def run(self, lines: str, given: str = "") -> str:
        """The output of these lines. Fails with the errors of the first one that fails."""
        child = await asyncio.create_subprocess_exec(
            *("bash", "-euo", "pipefail", "-c", lines),
            cwd=ROOT,
            env=self._env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await child.communicate(given.encode())
        assert child.returncode == 0, f"{lines}\n{out.decode()[-4000:]}{err.decode()[-4000:]}"
        return out.decode()


async def install(site: Site, database: Database, folder: Path) -> Shell:
    """Runs the five lines of the page, then gives the settings and templates of the tests.

    database: an empty one.
    Returns the administrator's shell when every Deployment is ready.
    """
    shell = Shell(site, folder)
    lines = find_block(INSTALL, BEGINNING)
    assert [name for name in names_here(database) if name not in lines] == []
    await shell.run(as_here(lines, database))
    admin = await database.session("admin")
    await admin.execute("CREATE ROLE team_a LOGIN PASSWORD 'team_a' IN ROLE dispatch_submitter")
    await upgrade(site, shell)
    return shell


def as_here(lines: str, database: Database) -> str:
    """The lines with the names of this site in place of those of the page of installation."""
    for name, here in names_here(database).items():
        lines = lines.replace(name, here)
    return lines


def names_here(database: Database) -> dict[str, str]:
    port = database.admin_url.rpartition(":")[2].partition("/")[0]
    return {
        "host=db.example": f"host={SERVICES} -v port={port} -v sslmode=disable",
        "postgresql://postgres@db.example/work": database.admin_url,
        "registry.example/dispatcher": REPOSITORY,
        "registry.example/team/app:1": PYTHON_TASK,
    }


async def upgrade(site: Site, shell: Shell, chart: Path = CHART, /, **values: object) -> None:
    """`helm upgrade` with the values of the tests, and these. Returns when every Deployment is ready."""
    await begin_upgrade(shell, chart, **values)
    await ready(site)


async def begin_upgrade(shell: Shell, chart: Path = CHART, /, **values: object) -> None:
    given = msgspec.json.encode({**VALUES, **values}).decode()
    await shell.run(f"helm upgrade dispatcher {chart} -n dispatcher -f -", given)


async def ready(site: Site, names: Iterable[str] = ("dispatcher", "dispatcher-janitor")) -> None:
    """Returns when every replica of these Deployments is of the newest kind, and ready."""
    for name in names:
        path = f"/apis/apps/v1/namespaces/{OURS}/deployments/{name}"

        async def is_ready(path: str = path) -> bool:
            site.check()
            found = await site.plane.admin("GET", path)
            status, wanted = found.get("status", {}), found["spec"]["replicas"]
            return status.get("observedGeneration") == found["metadata"]["generation"] and all(
                status.get(count, 0) == wanted for count in ("replicas", "updatedReplicas", "readyReplicas")
            )

        try:
            await site.plane.wait_for(is_ready, f"{name} is ready", READY_SECONDS)
        except TimeoutError as late:
            late.add_note(await states(site, OURS))
            raise


async def states(site: Site, namespace: str) -> str:
    """Every Pod of the namespace with the state of its containers, for the message of a failed test."""
    pods = (await site.plane.admin("GET", f"/api/v1/namespaces/{namespace}/pods"))["items"]
    lines = []
    for pod in pods:
        name, status = pod["metadata"]["name"], pod["status"]
        found = [(one["name"], one["state"]) for one in status.get("containerStatuses", ())]
        lines.append(f"{name} {status.get('phase')} {found} {await log_of(site, namespace, name)}")
    return "\n".join(lines)


async def log_of(site: Site, namespace: str, pod: str) -> str:
    try:
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        return str((await site.plane.admin("GET", path, params={"tailLines": "15"})).get("message", ""))
    except KubeFault as fault:
        return str(fault)
