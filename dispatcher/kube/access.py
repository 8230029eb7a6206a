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
from dispatcher.kube.lease import LEASES_GROUP, LeaseName
from dispatcher.model.errors import ClusterError

REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
Rule = tuple[str, str, tuple[str, ...]]
OF_JOBS: Final[tuple[Rule, ...]] = (
    ("batch", "jobs", ("get", "list", "watch", "create", "delete", "patch")),
    ("", "pods", ("delete",)),
    ("", "events", ("list", "create")),
    ("", "resourcequotas", ("list", "watch")),
    ("kueue.x-k8s.io", "workloads", ("list",)),
)
WITHOUT_CLUSTER: Final[tuple[Rule, ...]] = (("", "pods", ("list", "watch")),)
OF_CLUSTER: Final[tuple[Rule, ...]] = (
    ("", "nodes", ("list", "watch")),
    ("", "pods", ("list", "watch")),
    ("scheduling.k8s.io", "priorityclasses", ("list", "watch")),
)
FOR_PEOPLE: Final = frozenset({
    ("configmaps", "create"), ("configmaps", "get"), ("configmaps", "update"),
    ("events", "create"), ("workloads", "list"),
})  # fmt: skip
"""Launches go on without these. The log and the status tell that they are missing."""


class AccessReview(Struct, frozen=True):
    """One verb on one resource. No namespace means cluster-wide. No name means every object."""

    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.verb, self.resource, self.name)))


def questions(namespace: str, lease: LeaseName, *, with_nodes: bool) -> Iterator[AccessReview]:
    """All verbs that a dispatcher uses. A create is asked without a name, because RBAC cannot limit it by name."""
    for group, resource, verbs in OF_JOBS if with_nodes else (*OF_JOBS, *WITHOUT_CLUSTER):
        yield from (AccessReview(group, resource, verb, namespace) for verb in verbs)
    yield AccessReview(LEASES_GROUP, "leases", "create", lease.namespace)
    for verb in ("get", "update"):
        yield AccessReview(LEASES_GROUP, "leases", verb, lease.namespace, lease.name)
    yield AccessReview("", "configmaps", "create", lease.namespace)
    for verb, name in (("update", "status"), ("update", "reasons"), ("get", "reasons")):
        yield AccessReview("", "configmaps", verb, lease.namespace, f"{lease.installation}-{name}")
    for group, resource, verbs in OF_CLUSTER if with_nodes else ():
        yield from (AccessReview(group, resource, verb) for verb in verbs)


class ReviewStatus(Struct, frozen=True):
    allowed: bool = False


class Review(Struct, frozen=True):
    status: ReviewStatus = ReviewStatus()


class Access:
    """The check of our rights. A question without an answer is no refusal: its last answer holds.

    missing: the missing verbs, and what kept the API server from answering; empty: all is allowed.
    fault: the missing verbs without which nothing can be launched.
    """

    def __init__(self, client: KubeClient, namespace: str, lease: LeaseName, *, with_nodes: bool) -> None:
        self._client = client
        self._questions = tuple(questions(namespace, lease, with_nodes=with_nodes))
        self._refused: set[AccessReview] = set()
        self.fault = self.missing = "not asked yet"

    async def check(self) -> None:
        """Asks for every verb. What is asked for without a right is refused when it is used, too."""
        unanswered = ""
        for asked in self._questions:
            try:
                (self._refused.discard if await self._may(asked) else self._refused.add)(asked)
            except ClusterError as fault:
                unanswered = str(fault)
                break
        missing = [asked for asked in self._questions if asked in self._refused]
        self.missing = "; ".join(filter(None, (*told(missing), unanswered)))
        self.fault = "; ".join(told(one for one in missing if (one.resource, one.verb) not in FOR_PEOPLE))

    async def _may(self, asked: AccessReview) -> bool:
        attributes = {field: value for field, value in msgspec.structs.asdict(asked).items() if value}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                  "spec": {"resourceAttributes": attributes}}  # fmt: skip
        reply = await self._client.request("POST", REVIEWS, msgspec.json.encode(review), seconds=10)
        return reply.read(f"ask whether {asked} is allowed", Review).status.allowed


def told(missing: Iterable[AccessReview]) -> Iterator[str]:
    """The missing verbs as text, one item for each namespace."""
    for namespace, asked in itertools.groupby(missing, lambda one: one.namespace):
        where = f"in namespace {namespace}" if namespace else "cluster-wide"
        yield f"{where} not allowed: {', '.join(map(str, asked))}"
