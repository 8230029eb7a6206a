"""A node of processes: its object in the API server, and the folders of its Pods.

`LocalNode`: the Node object, its readiness, and the lease that shows it alive.

`Sandbox`: the folder of one Pod holds everything that the kubelet knows of the Pod. So the kubelet may be killed at any
moment, and continues after a restart. A container is alive while its shim holds the lock. It is over once `ended.json`
exists.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import platform
import shutil
import signal
import socket
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from dispatcher import __version__
from dispatcher.kube.client import KubeClient, Reply
from dispatcher.model.errors import ClusterError
from dispatcher.model.resources import parse_quantity
from dispatcher.model.stored_json import Json
from dispatcher_demo.node.statuses import ProcessOrder, ProcessState, written

log = structlog.get_logger(component="demo.node")

LEASE_SECONDS: Final = 40
"""Length of the lease, in seconds."""
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class LocalNode:
    """Keeps one Node object. `size`: capacity by resource. `labels`: added to the well-known ones."""

    def __init__(self, client: KubeClient, name: str, size: dict[str, str], labels: dict[str, str]) -> None:
        self._client = client
        self._name = name
        self.size = size
        self._labels = labels
        self._lease_seconds = LEASE_SECONDS

    async def run(self, every_seconds: float) -> None:
        """Writes readiness and lease, round after round. A status that a controller changed is corrected."""
        while True:
            try:
                await self.write_status()
                await self.renew()
            except ClusterError as fault:
                log.warning("the node could not be kept", node=self._name, fault=str(fault))
            except Exception:  # a node that is not renewed is lost, with all that runs on it
                log.exception("the node could not be kept", node=self._name)
            await asyncio.sleep(every_seconds)

    async def write_status(self) -> None:
        reply = await self._client.request("GET", f"/api/v1/nodes/{self._name}")
        if reply.status == 404:
            reply = await self._client.request("POST", "/api/v1/nodes", msgspec.json.encode(self._node()))
        node: Json = msgspec.json.decode(reply.expect(f"node {self._name}"))
        conditions = node.get("status", {}).get("conditions", [])
        known = {name: parse_quantity(amount) for name, amount in node.get("status", {}).get("capacity", {}).items()}
        if is_ready(conditions) and known == {name: parse_quantity(amount) for name, amount in self.size.items()}:
            return
        node["status"] |= self._status(conditions)
        doing = f"status of node {self._name}"
        conflict_is_fine(await self._put(f"/api/v1/nodes/{self._name}/status", node), doing)

    async def renew(self) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": self._name, "leaseDurationSeconds": self._lease_seconds, "renewTime": now}
        reply = await self._client.request("GET", f"{LEASES}/{self._name}")
        if reply.status == 404:
            lease: Json = {"metadata": {"name": self._name}, "spec": spec}
            reply = await self._client.request("POST", LEASES, msgspec.json.encode(lease))
            conflict_is_fine(reply, f"lease of node {self._name}")
            return
        lease = msgspec.json.decode(reply.expect(f"lease of node {self._name}"))
        lease["spec"] |= spec
        conflict_is_fine(await self._put(f"{LEASES}/{self._name}", lease), f"lease of node {self._name}")

    async def _put(self, path: str, whole: Json) -> Reply:
        return await self._client.request("PUT", path, msgspec.json.encode(whole))

    def _node(self) -> Json:
        well_known = {
            "kubernetes.io/hostname": self._name,
            "kubernetes.io/os": platform.system().lower(),
            "kubernetes.io/arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        }
        meta = {"name": self._name, "labels": well_known | self._labels}
        return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": self._status([])}

    def _status(self, before: list[Json]) -> Json:
        now = written(time.time())
        others = [condition for condition in before if condition["type"] != "Ready"]
        ready = {
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "processes can be started",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        }  # fmt: skip
        return {
            "capacity": self.size,
            "allocatable": self.size,
            "conditions": [*others, ready],
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": socket.gethostname()},
            ],
            "nodeInfo": {
                "kubeletVersion": f"v0.0.0-process-{__version__}", "containerRuntimeVersion": "process://0",
                "operatingSystem": platform.system().lower(), "architecture": platform.machine(),
                "kernelVersion": platform.release(), "osImage": platform.platform(), "machineID": "", "systemUUID": "",
                "bootID": "", "kubeProxyVersion": "",
            },
        }  # fmt: skip


def is_ready(conditions: list[Json]) -> bool:
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def conflict_is_fine(reply: Reply, doing: str) -> None:
    """Accepts a 409: another client wrote first. The next round reads that, and writes again."""
    if reply.status != 409:
        reply.expect(doing)


SHIM_SECONDS: Final = 10
"""Seconds within which a shim starts, even on a very busy machine."""
SHIM: Final = Path(__file__).with_name("shim.py")
TAIL_BYTES: Final = 2048
TAIL_LINES: Final = 80
"""Lines of a log, and TAIL_BYTES its bytes, that a kubelet puts into a status, at most."""


class LocalContainer:
    """One container of a Pod: its shim, and the folder that they share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def name(self) -> str:
        return self.folder.name

    def start(self, order: ProcessOrder) -> None:
        """Starts the container. A repeated call after a crash starts nothing twice."""
        (self.folder / "tmp").mkdir(parents=True, exist_ok=True)
        env = {"TMPDIR": str(self.folder / "tmp"), **order.env}  # files left there are removed with the Pod
        write(self.folder, "spec", {"argv": order.argv, "env": env, "cwd": order.cwd})
        self.revive()

    def revive(self) -> None:
        """Starts a shim for a container that has none. A second shim does no harm: it finds the container started."""
        command = [sys.executable, "-I", "-S", str(SHIM), str(self.folder)]
        os.utime(self.folder / "spec.json")  # `is_stranded` counts from now
        nowhere = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in range(3)]
        os.posix_spawn(command[0], command, os.environ, file_actions=nowhere, setsid=True)  # `reap` collects it

    def look(self) -> ProcessState | None:
        """The state of the container; None if it was never started."""
        if not (self.folder / "spec.json").exists():
            return None
        pid, is_alive = self.pid(), self.is_alive()
        ended = read(self.folder / "ended.json")  # read after the lock: a shim writes it before it ends
        running = read(self.folder / "running.json")  # read last: a shim writes it before `ended.json`
        return ProcessState(
            started_at=running.get("at"),
            ended_at=ended.get("at"),
            exit_code=ended.get("exit_code"),
            fault=ended.get("fault", ""),
            tail=self.tail() if ended else "",
            is_gone=not ended and not is_alive and pid is not None,  # without a pid the shim has not begun
        )

    def terminate(self) -> bool:
        """Sends SIGTERM. False: the shim cannot receive it yet."""
        self._signal(signal.SIGTERM)
        return self.pid() is not None

    def kill(self) -> None:
        self._signal(signal.SIGUSR1)

    def is_stranded(self, now: float) -> bool:
        """Whether no shim came for SHIM_SECONDS: the kubelet was killed after it wrote `spec.json`."""
        return self.pid() is None and now - (self.folder / "spec.json").stat().st_mtime > SHIM_SECONDS

    def pid(self) -> int | None:
        """Pid of the shim that holds the lock, or held it last."""
        with contextlib.suppress(FileNotFoundError):
            return int(text) if (text := (self.folder / "alive").read_text()) else None
        return None

    def is_alive(self) -> bool:
        """Whether a shim holds the lock."""
        try:
            with (self.folder / "alive").open() as alive:
                fcntl.flock(alive, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def tail(self) -> str:
        """The end of the container's log, or empty."""
        try:
            with (self.folder / "log").open("rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - TAIL_BYTES))
                text = log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""
        return "".join(text.splitlines(keepends=True)[-TAIL_LINES:])

    def _signal(self, number: signal.Signals) -> None:
        pid = self.pid()
        if pid is not None and self.is_alive():
            with contextlib.suppress(ProcessLookupError):  # it ended just now
                os.kill(pid, number)


class Sandbox:
    """The folder of one Pod. `folder` belongs to this Pod alone, and stays until `remove`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def container(self, name: str) -> LocalContainer:
        """The container of this name, started or not."""
        return LocalContainer(self.folder / "containers" / name)

    def started(self) -> list[LocalContainer]:
        """The containers that were started, by name."""
        return [LocalContainer(spec.parent) for spec in sorted(self.folder.glob("containers/*/spec.json"))]

    def note(self, name: str, fact: Mapping[str, Any]) -> None:
        """Stores a fact about the Pod. It survives restarts of the kubelet."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write(self.folder, name, fact)

    def recall(self, name: str) -> dict[str, Any]:
        return read(self.folder / f"{name}.json")

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def reap() -> None:
    """Collects shims that were our children and have ended. The state of their containers is in the folders."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def write(folder: Path, name: str, fact: Mapping[str, Any]) -> None:
    """Writes the whole file or nothing."""
    (folder / f"{name}.new").write_text(json.dumps(fact))
    (folder / f"{name}.new").rename(folder / f"{name}.json")


def read(path: Path) -> dict[str, Any]:
    """The JSON object in the file. Empty: the file is missing, or was cut short by a crash of the machine."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return found
