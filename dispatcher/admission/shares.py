"""Shares of the cluster that queues and submitters have in flight, by dominant resource.

A share is the largest part of any one resource of all nodes (Dominant Resource Fairness, Ghodsi et al. 2011). So a
queue of large Pods cannot take more than a queue of many small ones. The number of Pods is a resource, too: otherwise
Pods without requests would have no share. If the size of the cluster is not known, a share is a number of Jobs.
"""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from dispatcher.model.amounts import NOTHING, Amounts, added
from dispatcher.model.launches import PodKind
from dispatcher.model.needs import PodNeeds

ONE_JOB: Final[Amounts] = MappingProxyType({"pods": 1000})


class Shares(Struct, frozen=True):
    """Requested amounts of all unfinished Jobs and unseen creates, without those whose Pods have ended.

    size: what all nodes have.
    by_queue: by queue.
    by_submitter: by (queue, submitter).
    """

    size: Amounts = ONE_JOB
    by_queue: Mapping[str, Amounts] = {}
    by_submitter: Mapping[tuple[str, str], Amounts] = {}

    def of_queue(self, queue: str) -> float:
        return dominant(self.by_queue.get(queue, NOTHING), self.size)

    def of_submitter(self, queue: str, submitter: str) -> float:
        return dominant(self.by_submitter.get((queue, submitter), NOTHING), self.size)

    def with_launch(self, pod: PodKind) -> "Shares":
        growing = GrowingShares(self)
        growing.add(pod)
        return growing.shares


class GrowingShares:
    """One copy of shares that changes with each launch, for hundreds of them. `shares` shows the changes."""

    def __init__(self, begin: Shares) -> None:
        self._by_queue, self._by_submitter = dict(begin.by_queue), dict(begin.by_submitter)
        self.shares = Shares(begin.size, self._by_queue, self._by_submitter)

    def add(self, pod: PodKind, count: int = 1) -> None:
        key, asks = (pod.queue, pod.submitted_by), asks_of(pod.needs, count)
        self._by_queue[pod.queue] = added(self._by_queue.get(pod.queue, NOTHING), asks)
        self._by_submitter[key] = added(self._by_submitter.get(key, NOTHING), asks)


def plan_shares(in_flight: Mapping[PodKind, int], size: Amounts) -> Shares:
    """The shares at the beginning of a cycle. `size`: what all nodes have; empty: not known."""
    growing = GrowingShares(Shares(size or ONE_JOB))
    for pod, count in in_flight.items():
        growing.add(pod, count)
    return growing.shares


def holders(in_flight: Mapping[PodKind, int]) -> Mapping[tuple[str, str], int]:
    """How many Jobs each (queue, submitter) has."""
    found: Counter[tuple[str, str]] = Counter()
    for pod, count in in_flight.items():
        found[pod.queue, pod.submitted_by] += count
    return found


def asks_of(needs: PodNeeds | None, count: int) -> Amounts:
    asks = needs.asks if needs is not None else ONE_JOB.items()
    return {name: amount * count for name, amount in asks}


def dominant(asked: Amounts, size: Amounts) -> float:
    """The largest part of a resource. A resource that no node has is left out."""
    return max((amount / size[name] for name, amount in asked.items() if size.get(name, 0) > 0), default=0)
