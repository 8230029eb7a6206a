"""Reads the resource requests of a Pod from its spec and its status, as kube-scheduler does."""

from collections.abc import Callable
from typing import Final

from dispatcher.kube.wire import Container, ContainerStatus, PodSpec
from dispatcher.model.amounts import Amounts, Written, asked_by, milli_of, without

ONE_POD: Final = {"pods": 1000}


def asked_of(spec: PodSpec, requests_of: Callable[[Container], Written]) -> Amounts:
    """The requests of a Pod, as kube-scheduler counts them."""
    first = tuple((requests_of(one), one.restart_policy == "Always") for one in spec.init_containers or ())
    containers = tuple(requests_of(one) for one in spec.containers)
    whole = requests(spec.resources.requests if spec.resources else None)
    return asked_by((containers, first, requests(spec.overhead), whole))


def limits_of(spec: PodSpec) -> Amounts:
    """The limits of a Pod, as ResourceQuotas count them. The overhead of a RuntimeClass is left out."""
    first = tuple(
        (requests(one.resources.limits), one.restart_policy == "Always") for one in spec.init_containers or ()
    )
    containers = tuple(requests(one.resources.limits) for one in spec.containers)
    whole = requests(spec.resources.limits if spec.resources else None)
    return without(asked_by((containers, first, (), whole)), ONE_POD)


def taken(container: Container, status: ContainerStatus | None) -> Written:
    """For each resource the larger of request and given amount, as kube-scheduler counts a resized Pod (KEP-1287)."""
    asked = container.resources.requests or {}
    if status is None:
        return requests(asked)
    largest = dict(asked)
    for given in (status.allocated_resources, status.resources.requests if status.resources else None):
        for name, amount in (given or {}).items():
            if name not in largest or is_more(amount, largest[name]):
                largest[name] = amount
    return requests(largest)


def is_more(amount: str, other: str) -> bool:
    try:
        return amount != other and milli_of(amount) > milli_of(other)
    except ValueError:  # an unreadable quantity counts as nothing
        return False


def requests(written: dict[str, str] | None) -> Written:
    return tuple((written or {}).items())
