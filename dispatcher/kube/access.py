"""Whether our identity may do what the work needs, asked before the work needs it (SelfSubjectAccessReview)."""

from typing import Final

import msgspec
from msgspec import Struct

from dispatcher.errors import ClusterError
from dispatcher.kube.client import KubeClient

REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
Rule = tuple[str, str, tuple[str, ...]]
OF_NAMESPACE: Final[tuple[Rule, ...]] = (
    ("batch", "jobs", ("get", "list", "watch", "create", "delete")),
    ("", "pods", ("list", "watch", "delete")),
    ("coordination.k8s.io", "leases", ("get", "create", "update")),
)
OF_CLUSTER: Final[tuple[Rule, ...]] = (("", "nodes", ("list", "watch")),)


class ReviewStatus(Struct, frozen=True):
    allowed: bool = False


class Review(Struct, frozen=True):
    status: ReviewStatus = ReviewStatus()


class Access:
    """Verbs that are missing; `fault` is empty when none is."""

    def __init__(self, client: KubeClient, namespace: str, *, with_nodes: bool) -> None:
        self._client = client
        self._namespace = namespace
        self._with_nodes = with_nodes
        self.fault = "not asked yet"

    async def check(self) -> None:
        """Asks for every verb; an API server that cannot be asked leaves the fault that says so."""
        missing: list[str] = []
        try:
            for rule in OF_NAMESPACE:
                missing += await self._missing(rule, self._namespace)
            for rule in OF_CLUSTER if self._with_nodes else ():
                missing += await self._missing(rule, None)
        except ClusterError as fault:
            self.fault = str(fault)
            return
        self.fault = f"in namespace {self._namespace} not allowed: {', '.join(missing)}" if missing else ""

    async def _missing(self, rule: Rule, namespace: str | None) -> list[str]:
        group, resource, verbs = rule
        return [f"{verb} {resource}" for verb in verbs if not await self._may(group, resource, verb, namespace)]

    async def _may(self, group: str, resource: str, verb: str, namespace: str | None) -> bool:
        asked = {"group": group, "resource": resource, "verb": verb} | ({"namespace": namespace} if namespace else {})
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                  "spec": {"resourceAttributes": asked}}  # fmt: skip
        reply = await self._client.request("POST", REVIEWS, msgspec.json.encode(review), seconds=10)
        return reply.read(f"ask whether {verb} {resource} is allowed", Review).status.allowed
