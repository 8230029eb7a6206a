"""Judges ResourceQuotas and LimitRanges of the namespace of Jobs by the Pod of a template.

The rules are those of the API server's admission plugins ResourceQuota and LimitRanger. Amounts that cannot be read
are left out: the dry run of the Job tells of them.
"""

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any, Final

import msgspec
from msgspec import Struct

from dispatcher.model.needs import PodNeeds
from dispatcher.model.quantity import parse_quantity
from dispatcher.model.quotas import Quota, Quotas, meets

Json = Mapping[str, Any]
TOLD: Final = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
"""If a quota limits one of these, each container has to name it."""


def quota_refusal(quota: Quota, pod: Json, needs: PodNeeds | None, given: frozenset[str]) -> str:
    """Why the quota would refuse the Pod, however empty it is. `given`: amounts that a LimitRange fills in."""
    if needs is None or not all(meets(needs, scope) for scope in quota.scopes):
        return ""
    empty = msgspec.structs.replace(quota, used=dict.fromkeys(quota.hard, 0))
    return Quotas((empty,)).why_not(needs) or next(unnamed(quota, pod, given), "")


def unnamed(quota: Quota, pod: Json, given: frozenset[str]) -> Iterator[str]:
    for limited in TOLD:
        side, _, resource = limited.rpartition(".")
        if limited in quota.hard and f"{side or 'requests'}.{resource}" not in given:
            for one in containers(pod):
                if resource not in amounts_of(one, side or "requests"):
                    yield f"ResourceQuota {quota.name} limits {limited}, and container {one.get('name', '')} names none"


class Defaults(Struct, frozen=True):
    """The amounts that LimitRanges give to containers that name none."""

    requests: Json = {}
    limits: Json = {}

    @property
    def names(self) -> frozenset[str]:
        """The filled in amounts by the names that quotas give them."""
        sides = {"requests": {**self.limits, **self.requests}, "limits": self.limits}
        return frozenset(f"{side}.{resource}" for side, amounts in sides.items() for resource in amounts)


def defaults_of(ranges: Iterable[Json]) -> Defaults:
    """The defaults of all ranges together. They are filled in before any bound is checked."""
    requests, limits = dict[str, Any](), dict[str, Any]()
    for item in (item for one in ranges for item in items_of(one) if item.get("type") == "Container"):
        requests |= item.get("defaultRequest") or {}
        limits |= item.get("default") or {}
    return Defaults(requests, limits)


def range_refusals(limit_range: Json, pod: Json, given: Defaults) -> Iterator[str]:
    """Why the LimitRange would refuse the Pod: each bound that it breaks."""
    for item in items_of(limit_range):
        if item.get("type") == "Container":
            for one in containers(pod):
                yield from refusals(item, f"container {one.get('name', '')}", *filled_in(one, given))
        if item.get("type") == "Pod":
            every = [filled_in(one, given) for one in pod.get("containers") or ()]
            yield from refusals(item, "the Pod", total([one[0] for one in every]), total([one[1] for one in every]))


def items_of(limit_range: Json) -> list[Json]:
    found: list[Json] = (limit_range.get("spec") or {}).get("limits") or []
    return found


def containers(pod: Json) -> list[Json]:
    return [*(pod.get("initContainers") or ()), *(pod.get("containers") or ())]


def amounts_of(container: Json, side: str) -> dict[str, str]:
    """The amounts that a container names. A limit alone is the request, too."""
    resources = container.get("resources") or {}
    found = {**(resources.get("limits") or {}), **((resources.get(side) or {}) if side == "requests" else {})}
    return {name: str(amount) for name, amount in found.items()}


def filled_in(container: Json, given: Defaults) -> tuple[dict[str, Fraction], dict[str, Fraction]]:
    """Requests and limits of a container after the defaults."""
    limits = {**given.limits, **amounts_of(container, "limits")}
    requests = {**given.limits, **given.requests, **amounts_of(container, "requests")}
    return read(requests), read(limits)


def read(amounts: Json) -> dict[str, Fraction]:
    found = {}
    for name, amount in amounts.items():
        try:
            found[name] = parse_quantity(str(amount))
        except ValueError:
            continue
    return found


def total(each: list[dict[str, Fraction]]) -> dict[str, Fraction]:
    names = {name for one in each for name in one}
    return {name: sum((one.get(name, Fraction(0)) for one in each), Fraction(0)) for name in names}


def refusals(item: Json, who: str, requests: Mapping[str, Fraction], limits: Mapping[str, Fraction]) -> Iterator[str]:
    for name, least in read(item.get("min") or {}).items():
        if name not in requests or requests[name] < least:
            yield f"{who} requests less {name} than the minimum {item['min'][name]}"
    for name, most in read(item.get("max") or {}).items():
        if name not in limits or max(limits[name], requests.get(name, limits[name])) > most:
            yield f"{who} has a limit of {name} above the maximum {item['max'][name]}, or none"
    for name, ratio in read(item.get("maxLimitRequestRatio") or {}).items():
        if not requests.get(name) or name not in limits or limits[name] / requests[name] > ratio:
            yield f"{who} has a limit of {name} above {item['maxLimitRequestRatio'][name]} times its request"
