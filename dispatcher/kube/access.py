"""Checks that our identity has the rights that the work needs (SelfSubjectAccessReview), before they are needed.

Each verb is checked where it is used: Jobs, Pods and quotas in the namespace of Jobs, the lease in our own namespace;
nodes, Pods and PriorityClasses cluster-wide.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from msgspec import Struct

from dispatcher.kube.client import KubeClient
from dispatcher.kube.lease import LeaseName
from dispatcher.kube.lease_object import LEASES_GROUP
from dispatcher.model.errors import ClusterError

REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
Rule = tuple[str, str, tuple[str, ...]]
OF_JOBS: Final[tuple[Rule, ...]] = (
    ("batch", "jobs", ("get", "list", "watch", "create", "delete", "patch")),
    ("", "pods", ("delete",)),
    ("", "events", ("list", "create")),
    ("", "resourcequotas", ("list", "watch")),
)
WITHOUT_CLUSTER: Final[tuple[Rule, ...]] = (("", "pods", ("list", "watch")),)
OF_CLUSTER: Final[tuple[Rule, ...]] = (
    ("", "nodes", ("list", "watch")),
    ("", "pods", ("list", "watch")),
    ("scheduling.k8s.io", "priorityclasses", ("list", "watch")),
)
FOR_PEOPLE: Final = frozenset({
    ("configmaps", "create"), ("configmaps", "get"), ("configmaps", "update"),
    ("events", "create"),
})  # fmt: skip
"""Launches go on without these. The log and the status tell that they are missing."""


class Question(Struct, frozen=True):
    """One verb on one resource. No namespace means cluster-wide. No name means every object."""

    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.verb, self.resource, self.name)))


def questions(namespace: str, lease: LeaseName, *, with_nodes: bool) -> Iterator[Question]:
    """All verbs that a dispatcher uses. A create is asked without a name, because RBAC cannot limit it by name."""
    for group, resource, verbs in OF_JOBS if with_nodes else (*OF_JOBS, *WITHOUT_CLUSTER):
        yield from (Question(group, resource, verb, namespace) for verb in verbs)
    yield Question(LEASES_GROUP, "leases", "create", lease.namespace)
    for verb in ("get", "update"):
        yield Question(LEASES_GROUP, "leases", verb, lease.namespace, lease.name)
    yield Question("", "configmaps", "create", lease.namespace)
    for verb, name in (("update", "status"), ("update", "reasons"), ("get", "reasons")):
        yield Question("", "configmaps", verb, lease.namespace, f"{lease.installation}-{name}")
    for group, resource, verbs in OF_CLUSTER if with_nodes else ():
        yield from (Question(group, resource, verb) for verb in verbs)


class ReviewStatus(Struct, frozen=True):
    allowed: bool = False


class Review(Struct, frozen=True):
    status: ReviewStatus = ReviewStatus()


class Access:
    """The check of our rights.

    missing: the missing verbs; empty if none is missing.
    fault: those of them without which nothing can be launched.
    """

    def __init__(self, client: KubeClient, namespace: str, lease: LeaseName, *, with_nodes: bool) -> None:
        self._client = client
        self._questions = tuple(questions(namespace, lease, with_nodes=with_nodes))
        self.fault = self.missing = "not asked yet"

    async def check(self) -> None:
        """Asks for every verb. Both texts also tell if the API server cannot be asked."""
        try:
            missing = [asked for asked in self._questions if not await self._may(asked)]
        except ClusterError as fault:
            self.fault = self.missing = str(fault)
            return
        self.missing = "; ".join(told(missing))
        self.fault = "; ".join(told(one for one in missing if (one.resource, one.verb) not in FOR_PEOPLE))

    async def _may(self, asked: Question) -> bool:
        attributes = {field: value for field, value in msgspec.structs.asdict(asked).items() if value}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                  "spec": {"resourceAttributes": attributes}}  # fmt: skip
        reply = await self._client.request("POST", REVIEWS, msgspec.json.encode(review), seconds=10)
        return reply.read(f"ask whether {asked} is allowed", Review).status.allowed


def told(missing: Iterable[Question]) -> Iterator[str]:
    """The missing verbs as text, one item for each namespace."""
    for namespace, asked in itertools.groupby(missing, lambda one: one.namespace):
        where = f"in namespace {namespace}" if namespace else "cluster-wide"
        yield f"{where} not allowed: {', '.join(map(str, asked))}"
