"""The environment of a demo: a database, a cluster with two nodes, the dispatcher and the janitor, all kept alive.

    run folder ─▶ Postgres, migrated ─▶ cluster (in this process, or the user's) ─▶ nodes · dispatcher · janitor

The run folder records every process. Its guard ends them all when this process ends, however it ends.

`ClusterAutoscaler`: adds nodes to the cluster in memory, as cluster-autoscaler does. Each look takes the waiting Pods,
leaves out those for which nodes are coming, and announces on the others that nodes come.
"""

import asyncio
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

import msgspec

from dispatcher.commands.reaching import API_FILE, KUBECONFIG_FILE
from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import log_in
from dispatcher.kube.job_api import jobs_path
from dispatcher.model.errors import ClusterError, DispatcherError
from dispatcher.model.launches import job_selector
from dispatcher.model.resources import parse_quantity
from dispatcher.model.stored_json import Json
from dispatcher.settings.definition import KubeSettings
from dispatcher_demo.cluster.cluster import EmbeddedCluster
from dispatcher_demo.database import DemoDatabase
from dispatcher_demo.node.children import UNWRITABLE, Keeper, RunFolder, unwritable
from dispatcher_demo.node.node import Sandbox
from dispatcher_demo.postgres import Home, free_port, is_free
from dispatcher_demo.samples import CACHE_ROOT, SECRET

SCAN_SECONDS: Final = 1.0
"""Seconds between two looks."""
COMES_SECONDS: Final = 3.0
"""Seconds until a node comes. A real node takes a minute."""
MOST_NODES: Final = 4
"""Nodes, at most."""
CORES: Final = 1
"""Cores of each node."""
WAITING: Final = {"fieldSelector": "status.phase=Pending,spec.nodeName="}


class ClusterAutoscaler:
    """Adds nodes to the cluster. `start` starts a node by its name, `tell` receives a line for each."""

    def __init__(
        self, client: KubeClient, start: Callable[[str], Awaitable[None]], tell: Callable[[str], None]
    ) -> None:
        self._client = client
        self._start = start
        self._tell = tell
        self._ordered = 0
        self._coming: set[asyncio.Task[None]] = set()
        self._said: set[str] = set()

    async def run(self) -> None:
        try:
            while True:
                with suppress(ClusterError):  # the next look asks again
                    await self._look()
                await asyncio.sleep(SCAN_SECONDS)
        finally:
            for one in self._coming:
                one.cancel()

    async def _look(self) -> None:
        reply = await self._client.request("GET", f"/api/v1/namespaces/{self._client.namespace}/pods", params=WAITING)
        pods = msgspec.json.decode(reply.expect("list the Pods that wait"))["items"]
        waiting = [pod for pod in pods if found_no_node(pod)]
        lacking = sum(map(cores_of, waiting)) - CORES * len(self._coming)
        count = min(math.ceil(lacking / CORES), MOST_NODES - self._ordered)
        if count <= 0:
            return
        for _ in range(count):
            self._ordered += 1
            task = asyncio.create_task(self._bring(f"grown-{self._ordered}"))
            self._coming.add(task)
            task.add_done_callback(self._coming.discard)
        await self._announce(waiting, f"pod triggered scale-up: {count} more")

    async def _bring(self, name: str) -> None:
        await asyncio.sleep(COMES_SECONDS)
        await self._start(name)
        self._tell(f"a node has come because Pods waited: {name}")

    async def _announce(self, pods: Sequence[Json], words: str) -> None:
        """Writes the Event of cluster-autoscaler, once for each Pod."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for meta in (pod["metadata"] for pod in pods if pod["metadata"]["uid"] not in self._said):
            self._said.add(meta["uid"])
            about = {"kind": "Pod", "apiVersion": "v1"} | {key: meta[key] for key in ("namespace", "name", "uid")}
            event = {
                "metadata": {"name": f"{meta['name']}.grows"}, "involvedObject": about, "reason": "TriggeredScaleUp",
                "message": words, "type": "Normal", "count": 1, "source": {"component": "cluster-autoscaler"},
                "firstTimestamp": now, "lastTimestamp": now,
            }  # fmt: skip
            path = f"/api/v1/namespaces/{meta['namespace']}/events"
            await self._client.request("POST", path, msgspec.json.encode(event))


def found_no_node(pod: Json) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable" for one in conditions)


def cores_of(pod: Json) -> float:
    """Requested cores of a Pod."""
    asked = (one.get("resources", {}).get("requests", {}).get("cpu", "0") for one in pod["spec"]["containers"])
    return float(sum(parse_quantity(str(one)) for one in asked))


NODES: Final = ("east", "west")
NODE_SIZE: Final = ("--cpu", "1", "--memory", "2Gi", "--pods", "20")
"""Options of a node, small enough that the samples fill both nodes."""
MAX_JOBS: Final = 8
GROWN_JOBS: Final = 40
"""MAX_JOBS of a cluster that grows."""
READY_SECONDS: Final = 60
"""Seconds until the nodes must take Pods."""
LOGS_SECONDS: Final = 60
"""Seconds for which `dispatcher logs` shows the output of a Job that has ended."""
LEAVE_SECONDS: Final = 10
"""Seconds for the removal of Jobs from the user's cluster, at most."""
LOOK_SECONDS: Final = 0.05
PROGRAMS: Final = ("dispatcher", "janitor")
SERVICE_FILE: Final = "psql.service"
"""A file in the run folder, once the demo takes rows."""


class DemoEnvironment:
    """`async with DemoEnvironment(templates, tell)`. `tell` receives a line for each process that was started again.

    keeper: keeps the servers and programs alive, and kills them.
    has_nodes: whether the nodes are the demo's own.
    """

    def __init__(
        self,
        templates: Mapping[str, str],
        tell: Callable[[str], None],
        kubeconfig: str | None = None,
        grows: bool = False,
    ) -> None:
        self._templates = templates
        self._tell = tell
        self._users_kubeconfig = kubeconfig
        self.has_nodes = kubeconfig is None
        self._grows = grows
        self._stack = AsyncExitStack()
        self._run_folder = RunFolder()
        self.installation = f"demo-{secrets.token_hex(3)}" if kubeconfig else "demo"
        self.api_url = ""
        self._api_port = 0

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
        self.keeper = Keeper(self._run_folder, self._tell)
        self._stack.push_async_callback(self.keeper.close)
        for name, text in self._templates.items():
            self.templates.mkdir(exist_ok=True)
            (self.templates / f"{name}.yaml").write_text(text)
        home = await asyncio.to_thread(Home, self._run_folder.folder / "postgres", way=(self._run_folder.folder,))
        self._database = DemoDatabase(home)
        await run_together(self._database.open(self.keeper), self._open_cluster())
        await self._open_programs()

    async def _open_cluster(self) -> None:
        if self._users_kubeconfig:
            self.kubeconfig = Path(self._users_kubeconfig)
        else:
            cluster = await self._stack.enter_async_context(EmbeddedCluster(self._run_folder.folder / "nodes"))
            self.kubeconfig = cluster.write_kubeconfig(self._run_folder.folder / KUBECONFIG_FILE)
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
            self._keep_program(
                "dispatcher", "run", "reader", MAX_JOBS=GROWN_JOBS if self._grows else MAX_JOBS, **cache
            ),
            self._keep_program("janitor", "janitor", "janitor"),
        )
        await self._until_ready()
        self._database.write_service(self._run_folder.folder / SERVICE_FILE)
        if self._grows and self.has_nodes:
            growing = self.keeper.watch(ClusterAutoscaler(self.client, self._keep_node, self._tell).run())
            self._stack.callback(growing.cancel)

    async def _keep_node(self, name: str) -> None:
        where = ("--folder", str(self._run_folder.folder / "nodes" / name), "--kubeconfig", str(self.kubeconfig))
        asked = ("--name", name, *where, *NODE_SIZE)
        await self.keeper.keep(name, self.keeper.program(name, "dispatcher_demo.node", *asked))

    async def _keep_program(self, name: str, command: str, login: str, **settings: object) -> None:
        values = {
            "DATABASE_URL": self.url(login), "KUBECONFIG": self.kubeconfig, "TEMPLATES_DIR": self.templates,
            "INSTALLATION": self.installation, "POLL_SECONDS": 0.5, "LEASE_SECONDS": 5, "KUBE_WRITES_PER_SECOND": 200,
            "TOMBSTONE_SECONDS": LOGS_SECONDS, **settings,
        }  # fmt: skip

        async def start() -> asyncio.subprocess.Process:
            """Starts the program on a port that is free now."""
            addresses = {"LISTEN_ADDRESS": f"127.0.0.1:{free_port()}"}
            if command == "run":
                addresses["DASHBOARD_ADDRESS"] = self._api_address()
            env = {f"DISPATCHER_{key}": str(value) for key, value in {**values, **addresses}.items()}
            return await self.keeper.program(name, "dispatcher", command, env=env)()

        await self.keeper.keep(name, start)

    def _api_address(self) -> str:
        """The address of the dispatcher's API. It stays the same, because people have it in their commands."""
        if not self._api_port or not is_free(self._api_port):
            self._api_port = free_port()
        self.api_url = f"http://127.0.0.1:{self._api_port}"
        (self._run_folder.folder / API_FILE).write_text(self.api_url)
        return f"127.0.0.1:{self._api_port}"

    async def _until_ready(self) -> None:
        """Waits until the nodes take Pods. The programs may start later: rows wait for them."""
        if self._users_kubeconfig:
            return
        limit = time.monotonic() + READY_SECONDS
        while True:
            self.keeper.check()
            found = msgspec.json.decode((await self.client.request("GET", "/api/v1/nodes")).body)["items"]
            ready = {node["metadata"]["name"] for node in found if not node["spec"].get("taints")}
            if ready == set(NODES):
                return
            if time.monotonic() > limit:
                late = min(set(NODES) - ready)
                raise DispatcherError(f"node {late} is not ready after {READY_SECONDS} s:\n{self.keeper.tail(late)}")
            await asyncio.sleep(LOOK_SECONDS)

    async def _leave_cluster(self) -> None:
        """Removes the demo's Jobs and its lease from the user's cluster, once no program makes new ones."""
        await self.keeper.close()
        self._run_folder.kill(*PROGRAMS)
        await remove_all(self.client, self.installation)

    # For DemoRun

    @property
    def templates(self) -> Path:
        return self._run_folder.folder / "templates"

    @property
    def terminal_note(self) -> Path:
        """The file in which the guard finds the state of the terminal."""
        return self._run_folder.folder / "terminal"

    def url(self, login: str) -> str:
        return self._database.url(login)

    def kill_node(self, name: str) -> int | None:
        """Kills a node: its kubelet and its containers. The kubelet starts again.

        Returns the number of containers; None: the node does not run now.
        """
        if not self.keeper.kill(name):
            return None
        pods = (self._run_folder.folder / "nodes" / name / "pods").glob("*")
        running = [one for pod in pods for one in Sandbox(pod).started() if one.is_alive()]
        for one in running:
            one.kill()
        return len(running)


async def remove_all(client: KubeClient, installation: str) -> None:
    """Removes the Jobs and the lease of an installation, for LEAVE_SECONDS at most."""
    namespace, limit = client.namespace, time.monotonic() + LEAVE_SECONDS
    await client.request("DELETE", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{installation}-leader")
    while names := await job_names(client, installation):
        for name in names:
            options = msgspec.json.encode({"propagationPolicy": "Foreground"})
            await client.request("DELETE", f"{jobs_path(namespace)}/{name}", options)
        if time.monotonic() > limit:
            return
        await asyncio.sleep(LOOK_SECONDS)


async def job_names(client: KubeClient, installation: str) -> list[str]:
    """Names of the installation's Jobs."""
    params = {"labelSelector": job_selector(installation)}
    reply = await client.request("GET", jobs_path(client.namespace), params=params)
    found = msgspec.json.decode(reply.expect("list the Jobs of the demo"))["items"]
    return [job["metadata"]["name"] for job in found]


async def run_together(*parts: Coroutine[None, None, None]) -> None:
    """Runs the parts at once. The first fault ends them all, and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for part in parts:
                group.create_task(part)
    except ExceptionGroup as faults:
        raise faults.exceptions[0] from faults
