"""helm against the real API server, as an operator calls it."""

import asyncio
import json
from pathlib import Path

import yaml

from tests.controlplane.api import Json, KubeFault
from tests.controlplane.binaries import HELM, KUBECTL, programs
from tests.controlplane.cluster import ControlPlane
from tests.rig.cli import Answer
from tests.rig.deployed import CHART, RENDERED


class Helm:
    """helm with folders of its own, as an administrator. The release `dispatcher` is in one namespace.

    options: more options of `helm upgrade`.
    """

    def __init__(self, plane: ControlPlane, folder: Path, namespace: str) -> None:
        self.plane = plane
        self.namespace = namespace
        self.folder = folder
        self.options: tuple[str, ...] = ()
        self.kubeconfig = plane.kubeconfig(folder / "admin", token=plane.admin_token, namespace=namespace)

    async def install(self, variant: str = "default", **values: object) -> Answer:
        """`helm upgrade --install`, with the values on top of those of the variant."""
        child = await self.installing(variant)
        return await said_by(child, json.dumps(values))

    async def installing(self, variant: str = "default") -> asyncio.subprocess.Process:
        """Starts the installation. It waits for more values on its input."""
        given = ("--values", RENDERED / "values" / f"{variant}.yaml", "--values", "-")
        return await self.start("upgrade", "--install", "dispatcher", CHART, *given, *self.options)

    async def __call__(self, *words: object) -> Answer:
        return await said_by(await self.start(*words))

    async def kubectl(self, *words: object) -> Answer:
        return await said_by(await self._start(programs(KUBECTL)["kubectl"], *words, "--kubeconfig", self.kubeconfig))

    async def start(self, *words: object) -> asyncio.subprocess.Process:
        place = ("--namespace", self.namespace, "--kubeconfig", self.kubeconfig)
        return await self._start(programs(HELM)["helm"], *words, *place)

    async def _start(self, *words: object) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *map(str, words),
            env={"HOME": str(self.folder), "PATH": "/usr/bin:/bin"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def objects(self) -> dict[str, Json]:
        """The objects of the release as the API server has them, by their paths."""
        said = await self("get", "manifest", "dispatcher")
        assert said.status == 0, said.err
        paths = [await self.path(one) for one in yaml.load_all(said.out, yaml.CSafeLoader) if one]
        return {path: await self.plane.admin("GET", path) for path in paths}

    async def knows(self, *kinds: str) -> bool:
        """Whether the API server serves these kinds of the Prometheus operator."""
        try:
            found = await self.plane.admin("GET", "/apis/monitoring.coreos.com/v1")
        except KubeFault:
            return False
        return {*kinds} <= {one["kind"] for one in found["resources"]}

    async def path(self, one: Json) -> str:
        collection, _ = await self.plane._place(one, one["metadata"].get("namespace", self.namespace))
        return f"{collection}/{one['metadata']['name']}"


async def said_by(child: asyncio.subprocess.Process, stdin: str = "") -> Answer:
    out, err = await child.communicate(stdin.encode())
    assert child.returncode is not None
    return Answer(child.returncode, out.decode(), err.decode())
