"""The cache keeper as a process, for a node of a journey."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tests.controlplane.api import KubeFault
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place


class Keeper(Dispatcher):
    """`dispatcher cache-keeper` as it would run on a node, with a root of its own."""

    def __init__(self, place: Place, node: str, root: Path, kubeconfig: Path | None = None) -> None:
        super().__init__(place, CACHE_ROOT=root, KUBECONFIG=kubeconfig)
        (root / "dispatcher").mkdir(parents=True, exist_ok=True)  # as kubelet does for the DaemonSet
        self.arguments = ("cache-keeper",)
        self._environment["NODE_NAME"] = self.node = node
        self._place = place

    def runs_in(self, pod: str, uid: str) -> None:
        """The Pod that the DaemonSet would have made."""
        self._environment |= {"POD_NAME": pod, "POD_UID": uid}

    async def told(self) -> dict[str, Any] | None:
        """What its ConfigMap says."""
        path = f"/api/v1/namespaces/{self._place.namespace}/configmaps/dispatcher-cache-{self.node}"
        try:
            found = await self._place.control_plane.admin("GET", path)
        except KubeFault:
            return None
        return json.loads(found["data"]["cache.json"])  # type: ignore[no-any-return]  # JSON is Any

    async def tells(self, *digests: str) -> None:
        async def is_told() -> bool:
            said = await self.told()
            return said is not None and set(said["directories"]) == set(digests) and said["whole"]

        await wait_for(is_told, f"the keeper of {self.node} tells {digests}", 30, check=self.check)

    async def command(self, kubeconfig: Path, *arguments: str) -> str:
        environment = {**self._environment, "DISPATCHER_KUBECONFIG": str(kubeconfig)}
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "dispatcher", *arguments, env=environment,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        said = (await child.communicate())[0].decode()
        assert child.returncode == 0, said
        return said
