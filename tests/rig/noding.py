"""Nodes of real processes: `python -m dispatcher_demo.node`, and a template whose container is `dispatcher exec`."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane.cluster import ControlPlane
from tests.controlplane.objects import write_kubeconfig
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import ROOT, Place

Json = dict[str, Any]
SECRET = "task-database"
POOL = "test.dispatcher.internal/pool"
EXEC = (sys.executable, "-m", "dispatcher", "exec", "--", "sh", "-c", 'eval "$SCRIPT"')
PYTHON = (sys.executable, "-c", 'import os; exec(os.environ["SCRIPT"])')


class Node:
    """One kubelet in a process of its own. Its containers outlive it until `remove`."""

    def __init__(self, place: Place, name: str, url: str | None = None) -> None:
        self.name = f"{name}-{place.namespace}"
        self.folder = place.folder / self.name
        self._plane: ControlPlane = place.control_plane
        self._pool = f"{POOL}={place.namespace}"
        self._config = write_kubeconfig(
            place.folder / f"{self.name}.kubeconfig",
            url=url or self._plane.url, ca_file=self._plane.ca_file, token=self._plane.admin_token,
        )  # fmt: skip
        self._log = place.folder / f"{self.name}.log"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        flags = ("--name", self.name, "--folder", str(self.folder), "--kubeconfig", str(self._config))
        size = ("--cpu", "64", "--memory", "256Gi", "--pods", "500", "--label", self._pool)
        with self._log.open("a") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "dispatcher_demo.node", *flags, *size,
                cwd=ROOT, env={"PATH": os.environ["PATH"], "HOME": str(self.folder.parent)}, stdout=log, stderr=log,
            )  # fmt: skip
        await wait_for(self.is_ready, f"node {self.name} is Ready", 20, check=self.check)

    async def is_ready(self) -> bool:
        """Whether the scheduler uses the node: it is Ready, and the controller has removed its taint."""
        found = (await self._plane.admin("GET", "/api/v1/nodes"))["items"]
        (node,) = [node for node in found if node["metadata"]["name"] == self.name] or [{"status": {}, "spec": {}}]
        ready = [c for c in node["status"].get("conditions", ()) if c["type"] == "Ready" and c["status"] == "True"]
        return bool(ready) and not node["spec"].get("taints")

    async def kill(self) -> None:
        """Kills the kubelet, as a crash does. The containers go on."""
        assert self._process is not None
        self._process.kill()
        await self._process.wait()
        self._process = None

    async def cordon(self) -> None:
        """Keeps the scheduler away: a node without a kubelet looks Ready for a while."""
        await self._plane.admin("PATCH", f"/api/v1/nodes/{self.name}", {"spec": {"unschedulable": True}})

    async def remove(self) -> None:
        """Removes the node, with everything that runs on it."""
        if self._process is not None:
            await self.kill()
        for alive in self.folder.glob("pods/*/containers/*/alive"):
            end(int(alive.read_text()))
        await self._plane.remove_node(self.name)

    def check(self) -> None:
        assert self._process is None or self._process.returncode is None, self._log.read_text()[-3000:]


def end(pid: int) -> None:
    """Ends a shim, which ends its container first. The pid may belong to another process by now."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        if b"shim.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGUSR1)


@asynccontextmanager
async def nodes(place: Place, *names: str) -> AsyncIterator[list[Node]]:
    """Runs nodes in a pool of the place. The place's template selects that pool."""
    made = [Node(place, name) for name in names]
    try:
        await asyncio.gather(*(node.start() for node in made), tell_database(place))
        real_template(place)
        yield made
    finally:
        await asyncio.gather(*(node.remove() for node in made))


async def tell_database(place: Place) -> None:
    """Makes the Secret with the URL, as `kubectl create secret generic` does."""
    secret = {"metadata": {"name": SECRET}, "stringData": {"TASK_DATABASE_URL": place.database.url("task")}}
    await place.control_plane.admin("POST", f"/api/v1/namespaces/{place.namespace}/secrets", secret)


def real_template(
    place: Place,
    name: str = "default",
    pod: Json | None = None,
    sidecars: Sequence[Json] = (),
    program: Sequence[str] = EXEC,
    **annotations: str,
) -> None:
    """Writes a template. Its first container runs the row's variable SCRIPT: by a shell, or by PYTHON."""
    container = {
        "name": "task",
        "image": "process/none:1",
        "command": list(program),
        "workingDir": str(ROOT),
        "envFrom": [{"secretRef": {"name": SECRET}}],
        "env": [{"name": "PATH", "value": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
    }
    spec = {"nodeSelector": {POOL: place.namespace}, "containers": [container, *sidecars], **(pod or {})}
    meta = {f"dispatcher.internal/{key.replace('_', '-')}": value for key, value in annotations.items()}
    job: Json = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"annotations": meta}}
    job["spec"] = {"template": {"spec": spec}}
    (place.templates / f"{name}.yaml").write_text(yaml.safe_dump(job))
