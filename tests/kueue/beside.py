"""A real Kueue beside the dispatcher: the program of its Go module, with its kinds and webhooks.

It looks after the Jobs of one namespace. It reads certificates from a fixed folder of the machine, so it runs in a
mount namespace of its own where that folder is ours. That needs root, or user namespaces.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import yaml

from tests.controlplane.api import Json, KubeFault
from tests.controlplane.binaries import Module, find_go, programs
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.ports import free_ports
from tests.controlplane.processes import Server
from tests.controlplane.waiting import wait_for
from tests.rig.admission import ADMISSION, KINDS, is_served, selected
from tests.scheduling.certificates import OF_SERVERS, Authority, Pair

KUEUE = Module(Path(__file__).parent / "tools", "kueue", {"kueue": "sigs.k8s.io/kueue/cmd/kueue"})
GROUP = "/apis/kueue.x-k8s.io/v1beta2"
HOOKS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
OF_OURS = frozenset({"batch", "kueue.x-k8s.io"})
"""Groups whose webhooks are put in force: those of other integrations are of no use here."""
OVER_ETC = """set -e
mount -t tmpfs none {mnt} && mkdir {mnt}/upper {mnt}/work
mount -t overlay none -o lowerdir=/etc,upperdir={mnt}/upper,workdir={mnt}/work /etc
mkdir -p /etc/kueue/metrics/certs && cp {certs}/tls.* /etc/kueue/metrics/certs
exec {program} --config={config} --feature-gates=VisibilityOnDemand=false --kubeconfig={kubeconfig}
"""


@cache
def folder_of_module() -> Path:
    """The source of Kueue. It comes from Go's cache, or by download; go.sum has its hash."""
    go, _ = find_go(shutil.which("go"))
    words = [str(go), "mod", "download", "-json", "sigs.k8s.io/kueue"]
    told = subprocess.run(words, cwd=KUEUE.folder, capture_output=True, text=True, check=True)
    return Path(json.loads(told.stdout)["Dir"]) / "config" / "components"


def kinds() -> Iterator[Json]:
    """The kinds of Kueue, in the version that it works with."""
    for path in sorted((folder_of_module() / "crd" / "bases").glob("*.yaml")):
        kind = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
        served = [one for one in kind["spec"]["versions"] if one["storage"]]
        yield {**kind, "spec": {**kind["spec"], "versions": served}}  # one version needs no conversion


def hooks(namespace: str, port: int, authority: Authority) -> Iterator[tuple[str, Json]]:
    """The webhooks by resource, for one namespace and for kinds of the cluster."""
    bundle = base64.b64encode(authority.certificate.read_bytes()).decode()
    text = (folder_of_module() / "webhook" / "manifests.yaml").read_text(encoding="utf-8")
    for resource, document in zip(HOOKS, yaml.load_all(text, yaml.CSafeLoader), strict=True):
        found = []
        for hook in document["webhooks"]:
            if {group for rule in hook["rules"] for group in rule["apiGroups"]} <= OF_OURS:
                url = f"https://127.0.0.1:{port}{hook['clientConfig']['service']['path']}"
                found.append({**hook, "clientConfig": {"url": url, "caBundle": bundle}, **selected(namespace)})
        yield resource, {"metadata": {"name": f"kueue-{namespace}"}, "webhooks": found}


def configuration(namespace: str, ports: tuple[int, int], certs: Path, *, without_label: bool) -> Json:
    probes, port = ports
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{probes}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": port, "certDir": str(certs)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": ["batch/job"]},
        "manageJobsWithoutQueueName": without_label,
        "managedJobsNamespaceSelector": selected(namespace)["namespaceSelector"],
    }


def certified(folder: Path) -> tuple[Authority, Path]:
    (folder / "mnt").mkdir(parents=True)
    authority, certs = Authority(folder, "authority"), folder / "certs"
    certs.mkdir()
    pair: Pair = authority.pair("kueue", usage=OF_SERVERS)
    shutil.copy(pair.certificate, certs / "tls.crt")
    shutil.copy(pair.key, certs / "tls.key")
    return authority, certs


@asynccontextmanager
async def kueue(
    plane: ControlPlane, namespace: str, folder: Path, *, without_label: bool = False
) -> AsyncIterator[Server]:
    """Kueue at work for the Jobs of a namespace. `without_label`: also for Jobs that name no queue."""
    authority, certs = certified(folder)
    probes, port = free_ports(2)
    config = folder / "config.yaml"
    config.write_text(
        yaml.safe_dump(configuration(namespace, (probes, port), certs, without_label=without_label)), encoding="utf-8"
    )
    for kind in kinds():
        await open_kind(plane, kind)
    kubeconfig = plane.kubeconfig(folder / "kubeconfig", token=plane.admin_token, namespace=namespace)
    script = OVER_ETC.format(
        mnt=folder / "mnt", certs=certs, program=programs(KUEUE)["kueue"], config=config, kubeconfig=kubeconfig
    )
    server = Server("kueue", ["unshare", "--mount", "--map-root-user", "sh", "-c", script], folder / "log")
    server.start()
    made = list[str]()
    try:
        for resource, hook in hooks(namespace, port, authority):
            await plane.admin("POST", f"{ADMISSION}/{resource}", hook)
            made.append(f"{ADMISSION}/{resource}/{hook['metadata']['name']}")
        await wait_for(lambda: has_quota(plane, namespace), "Kueue serves its webhooks", 60, check=server.check)
        yield server
    finally:
        for path in made:
            await plane.admin("DELETE", path)
        server.kill()


async def open_kind(plane: ControlPlane, kind: Json) -> None:
    """Makes a kind, unless it is there. The API server serves it a moment later."""
    name = kind["metadata"]["name"]
    if not await plane.exists(f"{KINDS}/{name}"):
        await plane.admin("POST", KINDS, kind)
    await wait_for(lambda: is_served(plane, f"{GROUP}/{kind['spec']['names']['plural']}"), f"{name} is served", 60)


async def has_quota(plane: ControlPlane, namespace: str) -> bool:
    """Makes a queue `team-a` with room for 2 Jobs; whether it is there."""
    flavor = {"metadata": {"name": namespace}, "spec": {}}
    quota = [{"name": "cpu", "nominalQuota": "20m"}, {"name": "memory", "nominalQuota": "1Gi"}]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": namespace, "resources": quota}]}
    spec = {**selected(namespace), "resourceGroups": [group]}
    queue = {"metadata": {"name": "team-a"}, "spec": {"clusterQueue": namespace}}
    try:
        for path, document in (
            (f"{GROUP}/resourceflavors", flavor),
            (f"{GROUP}/clusterqueues", {"metadata": {"name": namespace}, "spec": spec}),
            (f"{GROUP}/namespaces/{namespace}/localqueues", queue),
        ):
            kind = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": KIND_OF[path.rpartition("/")[2]]}
            if not await plane.exists(f"{path}/{document['metadata']['name']}"):
                await plane.admin("POST", path, kind | document)
    except KubeFault:
        return False
    return True


KIND_OF = {"resourceflavors": "ResourceFlavor", "clusterqueues": "ClusterQueue", "localqueues": "LocalQueue"}
