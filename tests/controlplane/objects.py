"""Objects that tests send: manifests moved to a namespace, Nodes for kwok, kubeconfig files."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml

from tests.controlplane.api import Json


def documents(source: Path | str | Json | Iterable[Json]) -> list[Json]:
    """The manifests of a YAML file, with items of `kind: List`; or the given manifests."""
    if isinstance(source, (Path, str)):
        found = [document for document in yaml.safe_load_all(Path(source).read_text()) if document]
    elif isinstance(source, dict):
        found = [source]
    else:
        found = list(source)
    return [item for document in found for item in document.get("items", [document])]


def in_namespace(document: Json, namespace: str, *, namespaced: bool) -> Json:
    """The manifest, and the service accounts that a binding names, moved to `namespace`."""
    turned = document | {"metadata": dict(document["metadata"])}
    if namespaced:
        turned["metadata"]["namespace"] = namespace
    if "subjects" in document:
        turned["subjects"] = [
            subject | {"namespace": namespace} if subject["kind"] == "ServiceAccount" else subject
            for subject in document["subjects"]
        ]
    return turned


def node(name: str, size: Mapping[str, str], labels: Mapping[str, str], taints: Sequence[Json]) -> Json:
    """A Node for kwok, which manages Nodes with this annotation."""
    own = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": own | dict(labels),
            "annotations": {"kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0"},
        },
        "spec": {"taints": list(taints)},
        "status": {"capacity": dict(size), "allocatable": dict(size)},
    }


def is_ready(found: Json) -> bool:
    """Whether the Node is Ready and has lost the taint `not-ready` of new Nodes."""
    conditions = found.get("status", {}).get("conditions", [])
    taints = found.get("spec", {}).get("taints", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions) and not any(
        taint["key"] == "node.kubernetes.io/not-ready" for taint in taints
    )


def write_kubeconfig(path: Path, *, url: str, ca_file: Path | None, token: str, namespace: str = "default") -> Path:
    """A kubeconfig file with one cluster, one user and one context, all called `tests`. `ca_file` None: no TLS."""
    server = {"server": url} | ({"certificate-authority": str(ca_file)} if ca_file else {})
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": server}],
        "users": [{"name": "tests", "user": {"token": token}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests", "namespace": namespace}}],
        "current-context": "tests",
    }
    path.write_text(yaml.safe_dump(config))
    path.chmod(0o600)
    return path
