"""`dispatcher extender` in a process of its own, as in production: with the rights of the chart only."""

import asyncio
import io
import os
import sys
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Self

import aiohttp
import msgspec
import yaml

from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.ports import free_ports
from tests.rig.deployed import rendered
from tests.rig.dispatching import ROOT, Dispatcher

ACCOUNT = "extender"


class OwnExtender(Dispatcher):
    """One process. Use with `async with`, or start and kill it by hand. It has no database and no templates."""

    def __init__(self, kubeconfig: Path, **settings: object) -> None:
        self.port, self.extender_port = free_ports(2)
        self.program = (sys.executable, "-m", "dispatcher")
        self.folder = ROOT
        addresses: dict[str, object] = {
            "LISTEN_ADDRESS": f"127.0.0.1:{self.port}",
            "EXTENDER_ADDRESS": f"127.0.0.1:{self.extender_port}",
        }
        self._environment = environment(kubeconfig, addresses | settings)
        self._log = kubeconfig.with_name(f"extender-{self.port}.log")
        self._process: asyncio.subprocess.Process | None = None
        self._printed: Json | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    @property
    def url(self) -> str:
        scheme = "https" if "DISPATCHER_EXTENDER_TLS_DIR" in self._environment else "http"
        return f"{scheme}://127.0.0.1:{self.extender_port}"

    async def start(self) -> None:
        with self._log.open("a") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.program, "extender", cwd=self.folder, env=self._environment, stdout=log, stderr=log
            )

    async def printed(self) -> Json:
        """The configuration for kube-scheduler that the program prints; read once."""
        if self._printed is None:
            self._printed = await self._print()
        return self._printed

    async def _print(self) -> Json:
        printing = await asyncio.create_subprocess_exec(
            *self.program, "extender", "--print-scheduler-config",
            cwd=self.folder, env=self._environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        said, faults = await printing.communicate()
        assert printing.returncode == 0, faults.decode()
        found: Json = yaml.safe_load(said)
        return found

    async def configuration_like(self, other: "OwnExtender") -> Json:
        """The configuration that another extender printed, with this one's address."""
        printed = deepcopy(await other.printed())
        printed["extenders"][0]["urlPrefix"] = self.url
        return printed

    async def post(self, verb: str, body: object) -> tuple[int, Any]:
        """(status, answer) of a call. A body that is not bytes is sent as JSON."""
        sent = body if isinstance(body, bytes) else msgspec.json.encode(body)
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
            session.post(f"{self.url}/{verb}", data=io.BytesIO(sent)) as answer,
        ):
            return answer.status, msgspec.json.decode(await answer.read())

    async def scores(self, pod: Json, names: list[str]) -> dict[str, int]:
        status, answer = await self.post("prioritize", {"Pod": pod, "Nodes": None, "NodeNames": names})
        assert status == 200, answer
        return {one["Host"]: one["Score"] for one in answer}

    async def answered(self, verb: str, outcome: str = "ok") -> int:
        return int(await self.metric("dispatcher_extender_request_seconds_count", verb=verb, outcome=outcome))


def environment(kubeconfig: Path, settings: Mapping[str, object]) -> dict[str, str]:
    written = {f"DISPATCHER_{name}": str(value) for name, value in settings.items()}
    place = {"PATH": os.environ["PATH"], "HOME": str(kubeconfig.parent)}
    return {**place, "DISPATCHER_KUBECONFIG": str(kubeconfig), **written}


def shipped_rules() -> list[Json]:
    (role,) = [
        one
        for one in rendered("everything", only="scheduler-rbac")
        if (one["kind"], one["metadata"]["name"]) == ("ClusterRole", "dispatcher-extender.dispatcher")
    ]
    rules: list[Json] = role["rules"]
    return rules


async def account(plane: ControlPlane, namespace: str, folder: Path) -> Path:
    """Creates an account with the extender's rights of the chart only, and returns its kubeconfig's path."""
    name = f"{ACCOUNT}-{namespace}"
    bound = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}}
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    await plane.admin("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": ACCOUNT}})
    await plane.admin("POST", f"{rbac}/clusterroles", {"metadata": {"name": name}, "rules": shipped_rules()})
    await plane.admin(
        "POST", f"{rbac}/clusterrolebindings", {"metadata": {"name": name}, "subjects": [subject], **bound}
    )
    token = await plane.service_account_token(namespace, ACCOUNT)
    return plane.kubeconfig(folder / "extender.kubeconfig", token=token, namespace=namespace)
