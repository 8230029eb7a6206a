"""The kinds of object that are served, and what a path of the API names."""

from typing import Final

from msgspec import Struct

from dispatcher.local.cluster.faults import not_found

NAMED: Final = frozenset({"metadata.name", "metadata.namespace"})


class Kind(Struct, frozen=True):
    """`fields`: what a fieldSelector may name."""

    kind: str
    plural: str
    group: str = ""
    namespaced: bool = True
    has_status: bool = False
    fields: frozenset[str] = NAMED

    @property
    def api_version(self) -> str:
        return f"{self.group}/v1" if self.group else "v1"


NAMESPACE: Final = Kind("Namespace", "namespaces", namespaced=False, has_status=True)
NODE: Final = Kind(
    "Node", "nodes", namespaced=False, has_status=True, fields=frozenset({"metadata.name", "spec.unschedulable"})
)
POD: Final = Kind(
    "Pod", "pods", has_status=True, fields=NAMED | {"spec.nodeName", "spec.schedulerName", "status.phase"}
)
JOB: Final = Kind("Job", "jobs", "batch", has_status=True, fields=NAMED | {"status.successful"})
EVENT: Final = Kind(
    "Event", "events", fields=NAMED | {"involvedObject.kind", "involvedObject.name", "involvedObject.uid", "reason"}
)
SECRET: Final = Kind("Secret", "secrets", fields=NAMED | {"type"})
LEASE: Final = Kind("Lease", "leases", "coordination.k8s.io")
REVIEW: Final = Kind("SelfSubjectAccessReview", "selfsubjectaccessreviews", "authorization.k8s.io", namespaced=False)
KINDS: Final = (NAMESPACE, NODE, POD, JOB, EVENT, SECRET, Kind("ConfigMap", "configmaps"), LEASE, REVIEW)
BY_PLACE: Final = {(kind.group, kind.plural): kind for kind in KINDS}


class Target(Struct, frozen=True):
    """What a path names: a collection, an object, or a part of it."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    part: str = ""


def read_path(path: str) -> Target:
    """ApiFault 404: nothing is served there."""
    group, rest = split_group(path.strip("/").split("/"))
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    plural, name, part = (*rest, "", "", "")[:3]
    kind = BY_PLACE.get((group, plural))
    if kind is None or len(rest) > 3 or (namespace and not kind.namespaced):
        raise not_found()
    return Target(kind, namespace, name, part)


def split_group(words: list[str]) -> tuple[str, list[str]]:
    if words[:2] == ["api", "v1"] and len(words) > 2:
        return "", words[2:]
    if words[:1] == ["apis"] and words[2:3] == ["v1"] and len(words) > 3:
        return words[1], words[3:]
    raise not_found()
