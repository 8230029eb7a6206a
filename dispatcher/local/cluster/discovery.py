"""Discovery: the answers from which kubectl learns which kinds there are. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from dispatcher import __version__
from dispatcher.local.cluster.kinds import KINDS, REVIEW, Kind

Json = dict[str, Any]
SHORT: Final[Mapping[str, tuple[str, ...]]] = {
    "configmaps": ("cm",), "events": ("ev",), "namespaces": ("ns",), "nodes": ("no",), "pods": ("po",),
    "priorityclasses": ("pc",), "resourcequotas": ("quota",),
}  # fmt: skip
VERBS: Final = ("create", "delete", "get", "list", "patch", "update", "watch")
IN_ALL: Final = frozenset({"jobs", "pods"})
"""What `kubectl get all` shows."""
GROUPS: Final = tuple(dict.fromkeys(kind.group for kind in KINDS if kind.group))


def discover(path: str) -> Json | None:
    """The answer to a path of discovery; None: it is another path."""
    return ANSWERS.get(path.rstrip("/"))


def group(name: str) -> Json:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


def resources(group_version: str) -> Json:
    listed = [resource(kind) for kind in KINDS if kind.api_version == group_version]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": listed}


def resource(kind: Kind) -> Json:
    return {
        "name": kind.plural, "singularName": kind.kind.lower(), "kind": kind.kind, "namespaced": kind.namespaced,
        "verbs": ["create"] if kind is REVIEW else list(VERBS), "shortNames": list(SHORT.get(kind.plural, ())),
        "categories": ["all"] if kind.plural in IN_ALL else [],
    }  # fmt: skip


ANSWERS: Final[Mapping[str, Json]] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group(name) for name in GROUPS]},
    "/api/v1": resources("v1"),
    **{f"/apis/{name}/v1": resources(f"{name}/v1") for name in GROUPS},
    "/version": {"major": "1", "minor": "36", "gitVersion": f"v1.36.0-dispatcher-{__version__}", "platform": "memory"},
}
