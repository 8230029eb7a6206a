"""The needs of the Pods of a kind of row, from its template, the row's spec and the pool that it names."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

from dispatcher.jobs.placed import place_pod
from dispatcher.jobs.templates import Template
from dispatcher.kube.needs import needs_of_manifest
from dispatcher.model.needs import PodNeeds
from dispatcher.model.placement import Placement, Pool


class PlacedBy(Struct, frozen=True):
    """The settings by which Pods are placed.

    pool_of: the pool that a row's spec names; None: no pool.
    scheduler_name: the scheduler of all Pods; empty: the one of the template.
    """

    pool_of: Callable[[Mapping[str, Any]], Pool | None] = lambda _: None
    scheduler_name: str = ""


NOT_PLACED: Final = PlacedBy()


def plan_needs(template: Template, spec: Mapping[str, Any], placed_by: PlacedBy) -> PodNeeds | None:
    """The needs of a Pod that `build_job` makes for such a row. None: its template cannot be read as a Pod."""
    containers = list(template.pod_spec["containers"])
    containers[template.container] = with_amounts(containers[template.container], spec)
    pod = place_pod({**template.pod_spec, "containers": containers}, Placement(pool=placed_by.pool_of(spec)))
    return needs_of_manifest({**pod, "schedulerName": placed_by.scheduler_name or pod.get("schedulerName") or ""})


def with_amounts(container: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """The container with the row's cpu and memory, as request and as limit."""
    amounts = {resource: spec[resource] for resource in ("cpu", "memory") if resource in spec}
    if not amounts:
        return dict(container)
    resources = dict(container.get("resources") or {})
    for side in ("requests", "limits"):
        resources[side] = {**(resources.get(side) or {}), **amounts}
    return {**container, "resources": resources}
