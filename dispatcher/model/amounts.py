"""What Pods ask of a node, as kube-scheduler counts it, in whole thousandths (of a core, of a byte, of a Pod).

Whole numbers, because thousands of nodes are compared for every Pod. What is finer than a thousandth is rounded up, as
kube-scheduler does. Rule: `component-helpers/resource.PodRequests` (containers side by side, init containers before
them one after another, sidecars among those from their turn on; what the Pod says for all of them counts instead;
overhead on top).
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from dispatcher.model.quantity import parse_quantity

Amounts = Mapping[str, int]
NOTHING: Final[Amounts] = MappingProxyType({})
Written = tuple[tuple[str, str], ...]
"""Requests as they stand in a manifest."""
Asked = tuple[tuple[Written, ...], tuple[tuple[Written, bool], ...], Written, Written]
"""Containers; init containers, and whether each is a sidecar; overhead; what the Pod asks for as a whole."""


MOST_CONTAINERS: Final = 8
MOST_NAMES: Final = 8


@lru_cache(maxsize=8192)
def milli_of(written: str) -> int:
    """`1500m` is 1500. ValueError: no quantity."""
    thousandths = parse_quantity(written) * 1000
    return -(-thousandths.numerator // thousandths.denominator)


def amounts(written: Iterable[tuple[str, str]]) -> dict[str, int]:
    """What is no quantity asks for nothing: the API server has refused it before."""
    found = {}
    for name, amount in written:
        try:
            found[name] = milli_of(amount)
        except ValueError:
            continue
    return found


def added(some: Amounts, more: Amounts) -> dict[str, int]:
    return {name: some.get(name, 0) + more.get(name, 0) for name in {**some, **more}}


def less(some: Amounts, gone: Amounts) -> dict[str, int]:
    return {name: some[name] - gone.get(name, 0) for name in some}


def without(some: Amounts, gone: Amounts) -> dict[str, int]:
    """What is left, by what there is any left of."""
    return {name: left for name in some if (left := some[name] - gone.get(name, 0))}


def highest(some: Amounts, more: Amounts) -> dict[str, int]:
    return {name: max(some.get(name, 0), more.get(name, 0)) for name in {**some, **more}}


def asked_by(asked: Asked) -> Amounts:
    """All that one Pod asks for; it is a Pod, too. Shared by all Pods that ask alike: not to be written to."""
    is_plain = len(asked[0]) + len(asked[1]) <= MOST_CONTAINERS and all(len(one) <= MOST_NAMES for one in asked[0])
    return remembered(asked) if is_plain else total_of(asked)  # a memory of anything would be anybody's to fill


@lru_cache(maxsize=4096)
def remembered(asked: Asked) -> Amounts:
    return total_of(asked)


def total_of(asked: Asked) -> Amounts:
    containers, first, overhead, whole = asked
    beside: Amounts = {}
    peak: Amounts = {}
    for written, is_sidecar in first:
        needs = amounts(written)
        if is_sidecar:
            beside = added(beside, needs)
        peak = highest(peak, beside if is_sidecar else added(beside, needs))
    total = beside
    for written in containers:
        total = added(total, amounts(written))
    everything = added({**highest(total, peak), **amounts(whole)}, amounts(overhead))
    return {**without(everything, {}), "pods": 1000}
