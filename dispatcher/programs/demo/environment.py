"""The environment of a demo: a database, a cluster with two nodes, the dispatcher and the janitor, all kept alive.

    run folder ─▶ Postgres, migrated ─▶ cluster (in this process, or the user's) ─▶ nodes · dispatcher · janitor

The run folder records every process. Its guard ends them all when this process ends, however it ends.
"""

import asyncio
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Self

import msgspec

from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import log_in
from dispatcher.kube.job_api import jobs_path
from dispatcher.local.children import UNWRITABLE, Keeper, RunFolder, unwritable
from dispatcher.local.cluster.cluster import EmbeddedCluster
from dispatcher.local.postgres import Home, free_port
from dispatcher.model.errors import DispatcherError
from dispatcher.model.identity import job_selector
from dispatcher.programs.demo.database import DemoDatabase
from dispatcher.programs.demo.samples import CACHE_ROOT, SECRET
from dispatcher.settings.definition import KubeSettings

NODES: Final = ("east", "west")
NODE_SIZE: Final = ("--cpu", "1", "--memory", "2Gi", "--pods", "20")
"""Small enough that the samples fill both nodes."""
MAX_JOBS: Final = 8
READY_SECONDS: Final = 60
LEAVE_SECONDS: Final = 10
LOOK_SECONDS: Final = 0.05
PROGRAMS: Final = ("dispatcher", "janitor")


class DemoEnvironment:
    """`async with DemoEnvironment(templates, tell)`. `tell` receives a line for each process that was started again."""

    def __init__(
        self, templates: Mapping[str, str], tell: Callable[[str], None], kubeconfig: str | None = None
    ) -> None:
        self._templates = templates
        self._tell = tell
        self._users_kubeconfig = kubeconfig
        self._stack = AsyncExitStack()
        self._run_folder = RunFolder()
        self.installation = f"demo-{secrets.token_hex(3)}" if kubeconfig else "demo"
        self.metrics_url = self.api_url = ""

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException as fault:  # Ctrl-C, too: what was started ends
            await self._stack.aclose()
            if isinstance(fault, OSError):
                is_full = fault.errno in UNWRITABLE
                raise (
                    unwritable(fault) if is_full else DispatcherError(f"it could not be started: {fault!r}")
                ) from fault
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _open(self) -> None:
        self._stack.callback(self._run_folder.close)
        self._keeper = Keeper(self._run_folder, self._tell)
        self._stack.push_async_callback(self._keeper.close)
        for name, text in self._templates.items():
            self.templates.mkdir(exist_ok=True)
            (self.templates / f"{name}.yaml").write_text(text)
        home = await asyncio.to_thread(Home, self._run_folder.folder / "postgres", way=(self._run_folder.folder,))
        self._database = DemoDatabase(home)
        await run_together(self._database.open(self._keeper), self._open_cluster())
        await self._open_programs()

    async def _open_cluster(self) -> None:
        if self._users_kubeconfig:
            self.kubeconfig = Path(self._users_kubeconfig)
        else:
            cluster = await self._stack.enter_async_context(EmbeddedCluster())
            self.kubeconfig = cluster.write_kubeconfig(self._run_folder.folder / "kubeconfig")
        self.client = KubeClient(await log_in(KubeSettings(kubeconfig=str(self.kubeconfig))))
        self._stack.push_async_callback(self.client.close)
        if self._users_kubeconfig:
            self._stack.push_async_callback(self._leave_cluster)
        else:
            secret = {"metadata": {"name": SECRET}, "stringData": {"TASK_DATABASE_URL": self.url("task")}}
            path = f"/api/v1/namespaces/{self.client.namespace}/secrets"
            reply = await self.client.request("POST", path, msgspec.json.encode(secret))
            reply.expect("make the Secret of the tasks")

    async def _open_programs(self) -> None:
        nodes, cache = ((), {}) if self._users_kubeconfig else (NODES, {"CACHE_ROOT": CACHE_ROOT})
        await run_together(
            *map(self._keep_node, nodes),
            self._keep_program("dispatcher", "run", "reader", MAX_JOBS=MAX_JOBS, **cache),
            self._keep_program("janitor", "janitor", "janitor"),
        )
        await self._until_ready()

    async def _keep_node(self, name: str) -> None:
        where = ("--folder", str(self._run_folder.folder / "nodes" / name), "--kubeconfig", str(self.kubeconfig))
        asked = ("--name", name, *where, *NODE_SIZE)
        await self._keeper.keep(name, self._keeper.program(name, "dispatcher.local", *asked))

    async def _keep_program(self, name: str, command: str, login: str, **settings: object) -> None:
        values = {
            "DATABASE_URL": self.url(login), "KUBECONFIG": self.kubeconfig, "TEMPLATES_DIR": self.templates,
            "INSTALLATION": self.installation, "POLL_SECONDS": 0.5, "LEASE_SECONDS": 5, "KUBE_WRITES_PER_SECOND": 200,
            "TOMBSTONE_SECONDS": 2, **settings,
        }  # fmt: skip

        async def start() -> asyncio.subprocess.Process:
            """Starts the program on a port that is free now."""
            address, api = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
            if command == "run":
                self.metrics_url, self.api_url = f"http://{address}/metrics", f"http://{api}"
            addresses = {"LISTEN_ADDRESS": address, "DASHBOARD_ADDRESS": api}
            env = {f"DISPATCHER_{key}": str(value) for key, value in {**values, **addresses}.items()}
            return await self._keeper.program(name, "dispatcher", command, env=env)()

        await self._keeper.keep(name, start)

    async def _until_ready(self) -> None:
        """Waits until the nodes take Pods. The programs may start later: rows wait for them."""
        if self._users_kubeconfig:
            return
        limit = time.monotonic() + READY_SECONDS
        while True:
            self._keeper.check()
            found = msgspec.json.decode((await self.client.request("GET", "/api/v1/nodes")).body)["items"]
            ready = {node["metadata"]["name"] for node in found if not node["spec"].get("taints")}
            if ready == set(NODES):
                return
            if time.monotonic() > limit:
                late = min(set(NODES) - ready)
                raise DispatcherError(f"node {late} is not ready after {READY_SECONDS} s:\n{self._keeper.tail(late)}")
            await asyncio.sleep(LOOK_SECONDS)

    async def _leave_cluster(self) -> None:
        """Removes the demo's Jobs and its lease from the user's cluster, once no program makes new ones."""
        await self._keeper.close()
        self._run_folder.kill(*PROGRAMS)
        namespace, limit = self.client.namespace, time.monotonic() + LEAVE_SECONDS
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{self.installation}-leader"
        await self.client.request("DELETE", lease)
        while names := await self._jobs():
            for name in names:
                options = msgspec.json.encode({"propagationPolicy": "Foreground"})
                await self.client.request("DELETE", f"{jobs_path(namespace)}/{name}", options)
            if time.monotonic() > limit:
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def _jobs(self) -> list[str]:
        """Names of the demo's Jobs."""
        params = {"labelSelector": job_selector(self.installation)}
        reply = await self.client.request("GET", jobs_path(self.client.namespace), params=params)
        found = msgspec.json.decode(reply.expect("list the Jobs of the demo"))["items"]
        return [job["metadata"]["name"] for job in found]

    # For DemoRun

    @property
    def templates(self) -> Path:
        return self._run_folder.folder / "templates"

    def url(self, login: str) -> str:
        return self._database.url(login)

    async def reason(self, task_id: int) -> str:
        """Why a row does not become a Job, in the words of `dispatcher render`. Empty: it says nothing."""
        settings = {"DATABASE_URL": self.url("reader"), "TEMPLATES_DIR": self.templates, "LOG_LEVEL": "error"}
        env = {f"DISPATCHER_{key}": str(value) for key, value in settings.items()}
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "dispatcher", "render", str(task_id), env={**os.environ, **env},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        errors = (await child.communicate())[1].decode(errors="replace").strip()
        return errors.splitlines()[-1] if child.returncode and errors else ""

    def check(self) -> None:
        """ChildFault: a process has ended for good. The text holds the end of its log."""
        self._keeper.check()


async def run_together(*parts: Coroutine[None, None, None]) -> None:
    """Runs the parts at once. The first fault ends them all, and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for part in parts:
                group.create_task(part)
    except ExceptionGroup as faults:
        raise faults.exceptions[0] from faults
