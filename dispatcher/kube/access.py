"""Checks that our identity has the rights that the work needs (SelfSubjectAccessReview), before they are needed.

A verb is asked for where it is used: in the namespace of Jobs, in our own namespace, or cluster-wide.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from msgspec import Struct

from dispatcher.kube.client import KubeClient
from dispatcher.model.errors import ClusterError
from dispatcher.model.rights import Verb

REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
FOR_PEOPLE: Final = frozenset({
    ("configmaps", "create"), ("configmaps", "get"), ("configmaps", "list"), ("configmaps", "update"),
    ("configmaps", "watch"), ("events", "create"), ("workloads", "list"),
})  # fmt: skip
"""Launches go on without these rights. The log and the status name the missing ones."""


class ReviewStatus(Struct, frozen=True):
    allowed: bool = False


class Review(Struct, frozen=True):
    status: ReviewStatus = ReviewStatus()


class Access:
    """The check of our rights. A question without an answer is no refusal: its last answer holds.

    missing: the missing verbs, and what kept the API server from answering; empty: all is allowed.
    fault: the missing verbs without which nothing can be launched.
    """

    def __init__(self, client: KubeClient, verbs: Iterable[Verb]) -> None:
        self._client = client
        self._verbs = tuple(verbs)
        self._refused: set[Verb] = set()
        self.fault = self.missing = "not asked yet"

    async def check(self) -> None:
        """Asks for every verb. If a question itself needs a missing right, the use of the verb is refused, too."""
        unanswered = ""
        for asked in self._verbs:
            try:
                (self._refused.discard if await self._may(asked) else self._refused.add)(asked)
            except ClusterError as fault:
                unanswered = str(fault)
                break
        missing = [asked for asked in self._verbs if asked in self._refused]
        self.missing = "; ".join(filter(None, (*told(missing), unanswered)))
        self.fault = "; ".join(told(one for one in missing if (one.resource, one.verb) not in FOR_PEOPLE))

    async def _may(self, asked: Verb) -> bool:
        attributes = {field: value for field, value in msgspec.structs.asdict(asked).items() if value}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
                  "spec": {"resourceAttributes": attributes}}  # fmt: skip
        reply = await self._client.request("POST", REVIEWS, msgspec.json.encode(review), seconds=10)
        return reply.read(f"ask whether {asked} is allowed", Review).status.allowed


def told(missing: Iterable[Verb]) -> Iterator[str]:
    """The missing verbs as text, one item for each namespace."""
    for namespace, asked in itertools.groupby(missing, lambda one: one.namespace):
        where = f"in namespace {namespace}" if namespace else "cluster-wide"
        yield f"{where} not allowed: {', '.join(map(str, asked))}"
