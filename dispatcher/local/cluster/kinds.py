"""The kinds of objects that are served, and the targets of API paths."""

from typing import Final

from msgspec import Struct

NAMED: Final = frozenset({"metadata.name", "metadata.namespace"})


class Kind(Struct, frozen=True):
    """One kind of objects. `fields`: those that a fieldSelector may name."""

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
PRIORITY_CLASS: Final = Kind("PriorityClass", "priorityclasses", "scheduling.k8s.io", namespaced=False)
RESOURCE_QUOTA: Final = Kind("ResourceQuota", "resourcequotas", has_status=True)
"""Nobody counts what it limits, so it limits nothing."""
KINDS: Final = (
    NAMESPACE, NODE, POD, JOB, EVENT, SECRET, Kind("ConfigMap", "configmaps"), LEASE, REVIEW, PRIORITY_CLASS,
    RESOURCE_QUOTA,
)  # fmt: skip
BY_PLACE: Final = {(kind.group, kind.plural): kind for kind in KINDS}


class Target(Struct, frozen=True):
    """The target of a path: a collection, an object (`name`), or a subresource of it (`part`)."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    part: str = ""
