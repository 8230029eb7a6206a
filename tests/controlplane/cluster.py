"""A control plane of one test run.

All its files are in one temporary folder, and all its servers are children of this process. A server that dies during
the start, or while a test waits, is named with the end of its log. The exit of `ControlPlane` kills every server and
removes the folder, also after a failed start. Only logs in `logs_in` are kept.
"""

import asyncio
import secrets
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self, TypeVar, overload

from tests.controlplane import commands, waiting
from tests.controlplane.api import Api, Json, KubeFault
from tests.controlplane.audit import AuditLog
from tests.controlplane.binaries import programs
from tests.controlplane.commands import Layout
from tests.controlplane.objects import documents, in_namespace, is_ready, node, write_kubeconfig
from tests.controlplane.processes import Server

T = TypeVar("T")
REACHING_OTHERS = (
    *(f"/apis/apps/v1/namespaces/{{namespace}}/{kind}" for kind in ("deployments", "daemonsets", "statefulsets")),
    *(f"/apis/batch/v1/namespaces/{{namespace}}/{kind}" for kind in ("cronjobs", "jobs")),
    *(f"/api/v1/namespaces/{{namespace}}/{kind}" for kind in ("pods", "services")),
    "/apis/dispatcher.internal/v1alpha1/namespaces/{namespace}/nodereservations",
)
"""What makes Pods, takes room of nodes or addresses of the cluster. Owners come before what they own."""
START_SECONDS = 60  # for a cold disk and a busy machine; an idle one needs four


class ControlPlane:
    """etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok, on loopback."""

    api_port: int | None = None  # of a subclass; otherwise a free one
    flags: Mapping[str, Sequence[str]] = {}  # of a subclass: more flags by server, which win

    def __init__(self, *, logs_in: Path | None = None) -> None:
        """`logs_in`: a folder in which all logs are kept, the audit log included. Its path is printed at the end."""
        self._logs_in = logs_in
        self._folder: Path | None = None
        self._servers: dict[str, Server] = {}
        self._api: Api | None = None
        self._names = 0

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:  # Ctrl-C, too: the servers that were started end
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()
        if self._logs_in:
            sys.stderr.write(f"\nlogs of the control plane: {self.logs}\n")

    async def _start(self) -> None:
        self.programs: Mapping[str, Path] = await asyncio.to_thread(programs)
        self._folder = Path(tempfile.mkdtemp(prefix="controlplane-"))
        self.logs = Path(tempfile.mkdtemp(prefix="logs-", dir=self._logs_in or self._folder))
        self._layout = Layout.fresh(self._folder, self.logs, self.api_port)
        self.audit = AuditLog(self._layout.audit_log).events
        self._layout.token_file.write_text(self._layout.token_lines())
        self._layout.token_file.chmod(0o600)
        for user in self._layout.tokens:
            self.kubeconfig(self._layout.kubeconfig(user), token=self._layout.tokens[user], namespace="default")
        self._run("etcd", commands.etcd(self._layout))
        self._run("kube-apiserver", commands.apiserver(self._layout))
        # The certificate is written before its key, so it is complete once the key exists.
        await self.wait_for(self._layout.key_file.exists, "the API server's certificate", START_SECONDS)
        self._api = Api(self.url, self.ca_file, self.admin_token)
        await self._ready()
        self._run("kube-controller-manager", commands.controller_manager(self._layout))
        self._run("kube-scheduler", commands.scheduler(self._layout))
        self._run("kwok", commands.kwok(self._layout))
        await self.wait_for(self._has_controllers, "a controller at work", START_SECONDS)

    async def _stop(self) -> None:
        if self._api is not None:
            await self._api.close()
        for server in reversed(self._servers.values()):
            server.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder)
        self._api = self._folder = None

    def _run(self, name: str, flags: Sequence[str]) -> None:
        command = [str(self.programs[name]), *flags, *self.flags.get(name, ())]
        self._servers[name] = Server(name, command, self.logs / f"{name}.log")
        self._servers[name].start()

    async def _ready(self) -> None:
        try:
            await self.wait_for(self.api.is_ready, "the API server's /readyz", START_SECONDS)
        except TimeoutError as late:
            late.add_note(self._servers["kube-apiserver"].last_words())
            raise

    async def _has_controllers(self) -> bool:
        """Whether controllers work: one of them makes the service account of the namespace `default`."""
        return bool((await self.admin("GET", "/api/v1/namespaces/default/serviceaccounts"))["items"])

    @property
    def url(self) -> str:
        return self._layout.url

    @property
    def ca_file(self) -> Path | None:
        """None without TLS."""
        return self._layout.ca_file

    @property
    def admin_token(self) -> str:
        return self._layout.tokens["admin"]

    @property
    def api(self) -> Api:
        """The administrator's client."""
        assert self._api is not None, "the control plane is not up"
        return self._api

    def pids(self) -> dict[str, int]:
        """Pids of the running servers by name."""
        return {name: server.pid for name, server in self._servers.items() if server.pid}

    def check(self) -> None:
        """Raises ServerDied if one of the servers ended by itself."""
        for server in self._servers.values():
            server.check()

    @overload
    async def wait_for(self, predicate: Callable[[], Awaitable[T]], what: str, seconds: float = 10) -> T: ...
    @overload
    async def wait_for(self, predicate: Callable[[], T], what: str, seconds: float = 10) -> T: ...
    async def wait_for(self, predicate: waiting.Predicate[T], what: str, seconds: float = 10) -> T:
        """Waits for a true answer of `predicate` and returns it. Fails early when a server has died."""
        return await waiting.wait_for(predicate, what, seconds, check=self.check)

    # Calls of the administrator

    async def admin(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        params: Mapping[str, str] | None = None,
    ) -> Json:
        """One request as a member of system:masters; KubeFault from status 400 on."""
        return await self.api.request(method, path, body, params=params)

    async def exists(self, path: str) -> bool:
        try:
            await self.admin("GET", path)
        except KubeFault as fault:
            if fault.status != 404:
                raise
            return False
        return True

    async def remove(self, path: str, options: Json | None = None) -> None:
        """Deletes the object, if it is there."""
        try:
            await self.admin("DELETE", path, options)
        except KubeFault as fault:
            if fault.status != 404:
                raise

    async def create_namespace(self) -> str:
        """Creates a namespace. Pods can be created in it at once: this also creates its `default` service account."""
        self._names += 1
        name = f"test-{self._names}-{secrets.token_hex(3)}"
        await self.admin("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        try:
            await self.admin("POST", f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})
        except KubeFault as fault:
            if fault.status != 409:  # 409: the controller has created it already
                raise
        return name

    async def delete_namespace(self, name: str) -> None:
        """Requests the deletion and does not wait: the controllers empty the namespace in the background."""
        await self.admin("DELETE", f"/api/v1/namespaces/{name}")

    async def empty_namespace(self, name: str) -> None:
        """Deletes what could reach other tests, and leaves the rest to the end of the plane.

        The deletion of a namespace costs a fifth of a second of CPU: its controller asks for each kind of object.
        """
        for path in REACHING_OTHERS:
            await self.remove(path.format(namespace=name), {"gracePeriodSeconds": 0})

    async def apply(self, source: Path | str | Json | Iterable[Json], *, namespace: str) -> None:
        """Creates or replaces every object of a YAML file (or the given ones) in `namespace`; see `in_namespace`."""
        for document in documents(source):
            path, namespaced = await self._place(document, namespace)
            wanted = in_namespace(document, namespace, namespaced=namespaced)
            try:
                await self.admin("POST", path, wanted)
            except KubeFault as fault:
                if fault.status != 409:
                    raise
                await self._replace(f"{path}/{wanted['metadata']['name']}", wanted)

    async def _place(self, document: Json, namespace: str) -> tuple[str, bool]:
        """(path of the collection for this kind, whether the kind is namespaced)"""
        version = document["apiVersion"]
        prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
        for resource in (await self.admin("GET", prefix))["resources"]:
            if resource["kind"] == document["kind"] and "/" not in resource["name"]:
                place = f"/namespaces/{namespace}" if resource["namespaced"] else ""
                return f"{prefix}{place}/{resource['name']}", resource["namespaced"]
        raise LookupError(f"the server knows no {document['kind']} in {version}")

    async def _replace(self, path: str, wanted: Json) -> None:
        async def is_replaced() -> bool:
            version = (await self.admin("GET", path))["metadata"]["resourceVersion"]
            try:
                await self.admin("PUT", path, wanted | {"metadata": wanted["metadata"] | {"resourceVersion": version}})
            except KubeFault as fault:
                if fault.status != 409:  # a controller wrote its status in between
                    raise
                return False
            return True

        await self.wait_for(is_replaced, f"{path} is replaced")

    async def service_account_token(self, namespace: str, name: str) -> str:
        """A token like that of a Pod with this account."""
        body = {"spec": {"expirationSeconds": 3600}}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        return str((await self.admin("POST", path, body))["status"]["token"])

    def kubeconfig(self, path: Path, *, token: str, namespace: str) -> Path:
        """Writes a kubeconfig file for that identity."""
        return write_kubeconfig(path, url=self.url, ca_file=self.ca_file, token=token, namespace=namespace)

    async def add_nodes(
        self,
        count: int,
        *,
        cpu: str = "8",
        memory: str = "32Gi",
        pods: int = 110,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Json] | None = None,
        prefix: str = "node",
    ) -> list[str]:
        """Creates nodes of kwok and waits until Pods can be placed on them. Names are unique."""
        tag = secrets.token_hex(3)
        names = [f"{prefix}-{tag}-{number}" for number in range(count)]
        size = {"cpu": cpu, "memory": memory, "pods": str(pods), "ephemeral-storage": "100Gi"}
        for name in names:
            await self.admin("POST", "/api/v1/nodes", node(name, size, labels or {}, taints or ()))

        async def all_ready() -> bool:
            found = (await self.admin("GET", "/api/v1/nodes"))["items"]
            return set(names) <= {item["metadata"]["name"] for item in found if is_ready(item)}

        await self.wait_for(all_ready, f"{count} Ready nodes {prefix}-{tag}-*", 30)
        return names

    async def remove_node(self, name: str) -> None:
        """Deletes the Node. Its Pods stay, like those of a lost machine, until a controller deletes them."""
        await self.admin("DELETE", f"/api/v1/nodes/{name}")

    # Outages

    def pause(self) -> None:
        """Freezes the API server: it accepts connections and never answers."""
        self._servers["kube-apiserver"].freeze()

    def resume(self) -> None:
        self._servers["kube-apiserver"].thaw()

    async def stop_api_server(self) -> None:
        """Kills the API server: its connections break, new ones are refused."""
        await self.kill("kube-apiserver")

    async def start_api_server(self) -> None:
        """Starts the API server again, with the same address and objects, and waits until it is ready."""
        await self.revive("kube-apiserver")

    async def kill(self, name: str) -> None:
        """Kills one of the servers."""
        await asyncio.to_thread(self._servers[name].kill)

    async def revive(self, name: str) -> None:
        """Starts a killed server again, and waits until the API server is ready."""
        self._servers[name].start()
        await self._ready()
        if name == "etcd":  # after a 500 kwok drops the Pod, unlike a kubelet: a restart makes it list again
            await self.kill("kwok")
            self._servers["kwok"].start()
