"""Resource requests of Pods, counted as kube-scheduler does, in whole thousandths of a core, a byte or a Pod.

Amounts are whole numbers, because thousands of nodes are compared for every Pod. Finer amounts are rounded up, as
kube-scheduler does. The rule is `component-helpers/resource.PodRequests`:

* Containers run at the same time: their requests are added.
* Init containers run before them, one after another: the highest request counts, if it is above that sum.
* A sidecar is an init container that keeps running: it counts together with everything that starts after it.
* A request for the Pod as a whole replaces these numbers.
* Overhead is added at the end.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from dispatcher.model.quantity import parse_quantity

Amounts = Mapping[str, int]
NOTHING: Final[Amounts] = MappingProxyType({})
Written = tuple[tuple[str, str], ...]
"""Requests as in a manifest: (resource, quantity) pairs."""
Asked = tuple[tuple[Written, ...], tuple[tuple[Written, bool], ...], Written, Written]
"""Requests of one Pod: containers, init containers (each with: is it a sidecar?), overhead, the Pod as a whole."""


BINARY: Final = (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))
MOST_CONTAINERS: Final = 8
MOST_NAMES: Final = 8


@lru_cache(maxsize=8192)
def milli_of(written: str) -> int:
    """Thousandths of a quantity: `1500m` is 1500. Raises ValueError for any other text."""
    thousandths = parse_quantity(written) * 1000
    return -(-thousandths.numerator // thousandths.denominator)


def amounts(written: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Amounts by resource. Text that is no quantity is left out: the API server refuses objects with such text."""
    found = {}
    for name, amount in written:
        try:
            found[name] = milli_of(amount)
        except ValueError:
            continue
    return found


def written(resource: str, milli: int) -> str:
    """An amount as people write it: `1500m` of cpu, `4Gi` of memory."""
    if milli % 1000:
        return f"{milli}m"
    whole = milli // 1000
    is_bytes = resource in {"memory", "ephemeral-storage"} or resource.startswith("hugepages-")
    fitting = (f"{whole // size}{unit}" for unit, size in BINARY if is_bytes and whole and whole % size == 0)
    return next(fitting, str(whole))


def added(some: Amounts, more: Amounts) -> dict[str, int]:
    return {name: some.get(name, 0) + more.get(name, 0) for name in {**some, **more}}


def less(some: Amounts, gone: Amounts) -> dict[str, int]:
    return {name: some[name] - gone.get(name, 0) for name in some}


def without(some: Amounts, gone: Amounts) -> dict[str, int]:
    """`some` less `gone`, without the resources of which 0 is left."""
    return {name: left for name in some if (left := some[name] - gone.get(name, 0))}


def highest(some: Amounts, more: Amounts) -> dict[str, int]:
    return {name: max(some.get(name, 0), more.get(name, 0)) for name in {**some, **more}}


def asked_by(asked: Asked) -> Amounts:
    """All requests of one Pod, and one Pod (`pods`). Pods with equal requests share the result: never change it."""
    is_plain = len(asked[0]) + len(asked[1]) <= MOST_CONTAINERS and all(len(one) <= MOST_NAMES for one in asked[0])
    return remembered(asked) if is_plain else total_of(asked)  # large requests of others must not fill the cache


@lru_cache(maxsize=4096)
def remembered(asked: Asked) -> Amounts:
    return total_of(asked)


def total_of(asked: Asked) -> Amounts:
    containers, init_containers, overhead, whole = asked
    sidecars: Amounts = {}
    peak: Amounts = {}
    for written, is_sidecar in init_containers:
        needs = amounts(written)
        if is_sidecar:
            sidecars = added(sidecars, needs)
        peak = highest(peak, sidecars if is_sidecar else added(sidecars, needs))
    total = sidecars
    for written in containers:
        total = added(total, amounts(written))
    everything = added({**highest(total, peak), **amounts(whole)}, amounts(overhead))
    return {**without(everything, {}), "pods": 1000}
