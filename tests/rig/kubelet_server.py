"""A node whose kubelet answers the API server: logs and port-forward, served by kwok.

The node is called `localhost`, because the API server asks a node by its name. So there is one at a time.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane.cluster import ControlPlane
from tests.controlplane.commands import HERE
from tests.controlplane.objects import is_ready, node
from tests.controlplane.ports import free_ports
from tests.controlplane.processes import Server

NAME = "localhost"
POOL = {"test.dispatcher.internal/kubelet": "served"}
PORT_OF_THE_API = 8081
GROUP = "kwok.x-k8s.io/v1alpha1"


@asynccontextmanager
async def kubelet_server(plane: ControlPlane, folder: Path, ports: Mapping[str, int]) -> AsyncIterator[Path]:
    """Runs the node. Yields the file that every container of it has as its log.

    ports: by the name of a Pod, the port of this machine to which its port 8081 leads.
    """
    (port,), log = free_ports(1), folder / "container.log"
    log.touch()
    config = folder / "kwok.yaml"
    stages = list(yaml.safe_load_all((HERE / "stages.yaml").read_text()))
    stages[0]["options"]["enableDebuggingHandlers"] = True
    config.write_text(yaml.safe_dump_all([*stages, *served(ports, log)]))
    wanted = node(NAME, {"cpu": "8", "memory": "32Gi", "pods": "110"}, POOL, ())
    wanted["metadata"]["annotations"] = {}  # or the other kwok would manage it
    wanted["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": port}}
    certificate = plane.ca_file
    login = plane.kubeconfig(folder / "kwok.kubeconfig", token=plane.admin_token, namespace="default")
    flags = [
        f"--kubeconfig={login}", f"--config={config}", f"--manage-single-node={NAME}", "--node-ip=127.0.0.1",
        f"--node-port={port}", f"--server-address=127.0.0.1:{port}", f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={certificate.with_suffix('.key') if certificate else None}",
        "--node-lease-duration-seconds=40",  # without a lease, the node is taken for lost after this time
    ]  # fmt: skip
    server = Server("kubelet server", [str(plane.programs["kwok"]), *flags], folder / "kubelet-server.log")
    try:
        await plane.admin("POST", "/api/v1/nodes", wanted)
        server.start()
        await plane.wait_for(lambda: has_started(plane, server), "the node with a kubelet is Ready", 30)
        yield log
    finally:
        server.kill()
        await plane.remove(f"/api/v1/nodes/{NAME}")


async def has_started(plane: ControlPlane, server: Server) -> bool:
    server.check()
    return is_ready(await plane.admin("GET", f"/api/v1/nodes/{NAME}"))


def served(ports: Mapping[str, int], log: Path) -> list[dict[str, Any]]:
    forwards = [
        {
            "kind": "ClusterPortForward", "apiVersion": GROUP, "metadata": {"name": pod},
            "spec": {
                "selector": {"matchNames": [pod]},
                "forwards": [{"ports": [PORT_OF_THE_API], "target": {"address": "127.0.0.1", "port": port}}],
            },
        }
        for pod, port in ports.items()
    ]  # fmt: skip
    logs = {
        "kind": "ClusterLogs", "apiVersion": GROUP, "metadata": {"name": "all"},
        "spec": {"logs": [{"logsFile": str(log), "follow": True}]},
    }  # fmt: skip
    return [*forwards, logs]


async def add_pod_of_run(plane: ControlPlane, namespace: str, name: str) -> None:
    """Creates a Pod like that of `dispatcher run` on the node, and waits until it is Ready."""
    labels = {"app.kubernetes.io/name": "dispatcher", "app.kubernetes.io/component": "run"}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    spec = {"nodeName": NAME, "containers": [{"name": "dispatcher", "image": "registry.example/dispatcher:1"}]}
    await plane.admin("POST", pods, {"metadata": {"name": name, "labels": labels}, "spec": spec})

    async def has_started() -> bool:
        status = (await plane.admin("GET", f"{pods}/{name}"))["status"]
        return any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", ()))

    await plane.wait_for(has_started, f"{name} is Ready", 20)
